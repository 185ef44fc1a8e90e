"""Loops that nobody announces: no optimizer, or one that does not matter. Each prints how many steps a person would count.

    loops_found.py STYLE
"""

import sys
import threading

import torch
from torch import nn

DEVICE = "cuda"
told = 0


def step():
    global told
    told += 1


def network(depth=2):
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(depth))).to(DEVICE)


def batch(rows=8):
    return torch.ones(rows, 16, device=DEVICE)


def epochs():
    """Epochs of batches, and an evaluation under a decorator after each: both are steps."""
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    batches = [batch() for _ in range(12)]

    @torch.no_grad()
    def evaluate():
        total = 0
        for x in batches[:4]:
            total += net(x).sum().item()
            step()
        return total

    for _ in range(5):
        for x in batches:
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
            step()
        evaluate()


def accumulating():
    """Micro-batches are no steps where an optimizer says so."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(30):
        for _ in range(16):
            net(batch()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step()


def waiting():
    """A `while` loop whose condition looks at the device, with a comprehension in it."""
    net = network()
    x = batch()
    while told < 40:
        parts = [net(part) for part in x.chunk(4)]
        x = torch.cat(parts)
        step()


def generating():
    """A generator that loads, moves and augments, and a loop that takes what it yields."""

    def load():
        n = 0
        while n < 45:
            x = batch(4 + n % 3)
            x = x + 0.1
            yield x
            n += 1

    net = network()
    for x in load():
        y = net(x)
        del x, y
        step()


def evaluating():
    """One line in the loop, a module that loops over its layers inside."""
    net = network(6).eval()

    def predict(x):
        return net(x).argmax(-1)

    with torch.inference_mode():
        for x in [batch() for _ in range(33)]:
            predict(x)
            step()


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)
        self.keys = None

    def forward(self, x):
        k = self.k(x)
        self.keys = k if self.keys is None else torch.cat([self.keys, k])
        return torch.softmax(self.q(x) @ self.keys.T, -1) @ self.keys


@torch.no_grad()
def decoding():
    """Tokens of one long answer: the cache grows with each."""
    net = nn.Sequential(*(Cached() for _ in range(3))).to(DEVICE)
    x = batch(1)
    for _ in range(50):
        x = net(x)
        step()


def failing():
    """Some batches fail, and the loop goes on."""
    net = network()
    for n in range(44):
        try:
            x = batch() if n % 5 else torch.ones(8, 7, device=DEVICE)
            y = net(x)
            y = y * 2
        except RuntimeError:
            step()
            continue
        finally:
            x = None
        del y
        step()


class Tree(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.own = nn.Linear(16, 16)
        self.below = nn.ModuleList(Tree(depth - 1) for _ in range(2 if depth else 0))

    def forward(self, x):
        y = torch.tanh(self.own(x))
        for below in self.below:
            y = y + below(x)
        return y


def recursing():
    """A model that loops over models that loop over models."""
    net = Tree(3).to(DEVICE)
    for _ in range(36):
        net(batch())
        step()


def serving():
    """A thread that answers requests, each of several tokens; a request is a step."""
    import queue

    requests = queue.Queue()
    net = network(3)

    @torch.no_grad()
    def answer(tokens):
        x = batch(1)
        for _ in range(tokens):
            x = torch.cat([x, net(x[-1:])])
        return x.shape[0]

    def serve():
        while True:
            request = requests.get()
            if request is None:
                break
            answer(request)
            step()

    worker = threading.Thread(target=serve)
    worker.start()
    for n in range(60):
        requests.put(2 + n % 5)
    requests.put(None)
    worker.join()


def long():
    """So many that the level is chosen on the way; what then turns up inside an iteration is no step."""
    net = network()

    def check():
        for _ in range(10):
            net(batch()).sum()

    for n in range(600):
        x = batch()
        y = net(x)
        z = y.relu() + 1
        del x, y, z
        step()
        if n == 400:
            check()


def building():
    """A model of many layers, made on the device one by one: a loop, but nothing that goes on."""
    layers = []
    for _ in range(120):
        layers.append(nn.Linear(16, 16, device=DEVICE))
    nn.Sequential(*layers)(batch())


def endless():
    """Says every step, so that it can be ended after any of them; every seventh keeps something."""
    net = network()
    kept = []
    while True:
        y = net(batch(1 + told % 5))
        z = y.relu() + 1
        if told % 7 == 3:
            kept.append(z)
        del y, z
        step()
        print(f"step {told}", flush=True)
        if told == int(sys.argv[2]):
            break


def ranges():
    """Every third batch is a range of its own."""
    net = network()
    for n in range(60):
        if n % 3:
            net(batch())
            continue
        with torch.profiler.record_function("train step"):
            net(batch())
            step()


def marking():
    """A mark every tenth step, garbage in cycles that is collected in two, a cache that is emptied in three."""
    import ctypes
    import gc

    gc.disable()
    mark = ctypes.CDLL(None).leaktrace_mark
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for n in range(1, 41):
        with torch.profiler.record_function("forward"):
            loss = net(batch()).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step()
        if n % 10 == 5:
            mark(b"evaluate")
        if n in (12, 30):
            for _ in range(3):
                cycle = [batch()]
                cycle.append(cycle)
            del cycle
            gc.collect()
        if n in (8, 20, 33):
            large = [torch.empty(size << 20, device=DEVICE) for size in (30, 50, 70)]
            del large
            torch.cuda.empty_cache()


def emptied_without():
    """Memory that PyTorch gives back because a request does not fit, and a collection that frees nothing."""
    import gc

    net = network()
    for n in range(20):
        net(batch())
        step()
        if n == 9:
            kept = [torch.empty(100 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(3)]
            del kept
            gc.collect()
            torch.empty(350 << 20, dtype=torch.uint8, device=DEVICE)


def stepping_ranges():
    """Ranges in a program that has an optimizer."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for n in range(60):
        net(batch()).sum().backward()
        optimizer.step()
        if n % 3 == 0:
            with torch.profiler.record_function("train step"):
                net(batch())
                step()


def phases():
    """An encoder first, then training on twelve micro-batches a step, with an evaluation now and then. All are steps, but for the
    micro-batches and a glance of three batches after every step."""
    net = network()
    optimizer = torch.optim.AdamW(net.parameters())

    @torch.no_grad()
    def look(batches):
        for _ in range(batches):
            y = net(batch())
            y = y.softmax(-1)
            step()

    @torch.no_grad()
    def glance():
        for _ in range(3):
            net(batch()).softmax(-1)

    look(15)
    for n in range(40):
        for _ in range(12):
            net(batch()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        step()
        glance()
        if n % 10 == 9:
            look(11)


def phase_of_a_thread():
    """An evaluation at the end of a training, in a thread that has ended by the time the program does."""

    def train():
        net = network()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(20):
            net(batch()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step()
        with torch.no_grad():
            for _ in range(12):
                y = net(batch())
                y = y.softmax(-1)
                step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


def logging():
    """Every ten steps something is worked out for each parameter, which is no step."""
    net = network(8)
    optimizer = torch.optim.AdamW(net.parameters())
    for n in range(60):
        net(batch()).sum().backward()
        if n % 10 == 9:
            for p in net.parameters():
                (p.detach() ** 2).mean().item()
        optimizer.step()
        optimizer.zero_grad()
        step()


def late():
    """Evaluations that begin long after every line of the training is well known. The loop over the layers, which is not looked at
    any more by then, is a part of every step all the same."""
    layers = torch.nn.ModuleList(torch.nn.Linear(16, 16, device="cuda") for _ in range(8))
    optimizer = torch.optim.SGD(layers.parameters())

    def forward(x):
        for layer in layers:
            y = layer(x) * 2
            x = y.relu() + 1
        return x

    for n in range(200):
        forward(batch()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        step()
        if n >= 150 and n % 20 == 0:
            with torch.no_grad():
                for _ in range(12):
                    forward(batch()).softmax(-1)
                    step()


def announced():
    """Says its steps, at the end of each iteration; the next begins with an allocation."""
    import ctypes

    say = ctypes.CDLL(None).leaktrace_step
    net = network()
    kept = []
    for n in range(60):
        x = batch(1 + 8 * (n % 7))
        y = net(x)
        if n % 5 == 0:
            kept.append(y)
        step()
        say(None)


def none():
    """No loop at all, only a module's own."""
    net = network(3)
    net(batch()).sum()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(f"{sys.argv[1]}: {told} steps")
