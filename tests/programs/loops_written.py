"""One program, written in many ways: each iteration makes something and keeps it. Prints how many a person would count.

    loops_written.py STYLE
"""

import asyncio
import queue
import sched
import socketserver
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

DEVICE = "cuda"
N = 24
torch.set_grad_enabled(False)
net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).to(DEVICE)
kept = []


def batch():
    return torch.ones(8, 16).to(DEVICE)


def answer(n):
    kept.append(net(batch()))
    return n


def once(n):
    """One event."""
    kept.append(torch.zeros(8, device=DEVICE))


def bare():
    for _ in range(N):
        kept.append(torch.zeros(8, device=DEVICE))


def bare_within():
    for _ in range(N):  # loop
        with torch.no_grad():
            kept.append(torch.zeros(8, device=DEVICE))


def bare_while():
    while len(kept) < N:
        kept.append(torch.zeros(8, device=DEVICE))


def bare_now_and_then():
    for n in range(N):
        kept.append(torch.zeros(8, device=DEVICE))
        if n % 7 == 6:
            kept[-1].sum().item()


def two_blocks():
    for _ in range(N):
        x = batch()
        net[0](x)
        kept.append(x)


def few():
    for n in range(6):
        answer(n)
    return 6


def comprehension():
    [answer(n) for n in range(N)]


def bare_comprehension():
    [kept.append(torch.zeros(8, device=DEVICE)) for _ in range(N)]


def generator_expression():
    sum(answer(n) for n in range(N))


def mapped():
    list(map(answer, range(N)))


def bare_mapped():
    list(map(once, range(N)))


def mapped_over_a_stream():
    """C takes a batch from a generator and calls a function, in turn."""

    def stream():
        for _ in range(N):
            yield batch()

    def handle(x):
        kept.append(net(x))
        return len(kept)

    for _ in map(handle, stream()):
        pass


def mapped_over_a_stream_that_gives_now_and_then():
    """… that makes a batch for every third item only."""

    def stream():
        for n in range(N):
            if n % 3 == 0:
                x = batch()
            yield x

    list(map(lambda x: kept.append(net[0](x)), stream()))


def epochs_mapped():
    for _ in range(2):
        list(map(answer, range(N // 2)))


def epochs_comprehended():
    for _ in range(2):
        [answer(n) for n in range(N // 2)]


def one_epoch():
    """A model is made in a loop before."""
    layers = []
    for _ in range(30):
        layers.append(nn.Linear(16, 16, device=DEVICE))
    for _ in range(1):
        for n in range(N):
            answer(n)


def few_epochs_summed_up():
    """Each ends with what it made of its batches."""
    for _ in range(4):
        made = []
        for _ in range(6):
            made.append(net[0](batch()))
        total = torch.cat(made)
        mean = total.mean()
        kept.append(mean * 2)
        del made, total, mean


def few_epochs():
    """Too few to be judged by, and fewer batches in each: a training by hand, and an evaluation."""
    for _ in range(8):
        for n in range(6):
            answer(n)
        for n in range(6):
            net(batch())
    return 96


def set_up():
    """Weights are made in a loop, a copy of each of them for a moment."""
    weights = []
    for _ in range(12):
        weights.append(batch() * 0.1)
    for n in range(N):
        answer(n)
        net(batch())


def fed():
    def load():
        for _ in range(N):
            yield torch.ones(8, 16)

    def move(items):
        for x in items:
            yield x.to(DEVICE)

    for x in move(load()):
        kept.append(net(x))


def kept_alone():
    """Nothing but one call makes events, through a loop over layers; the same data each time."""
    x = batch()
    for _ in range(N):
        kept.append(net(x))


def kept_through_own_layers():
    x = torch.randn(4, 64, device="cuda")
    layers = [torch.randn(64, 64, device="cuda") for _ in range(3)]

    def forward(x):
        for layer in layers:
            x = torch.relu(x @ layer)
        return x

    for _ in range(N):
        kept.append(forward(x))


def kept_unrolled():
    x, cell = torch.randn(4, 64, device="cuda"), torch.nn.Linear(64, 64, device="cuda")

    def forward(x):
        for _ in range(5):
            x = cell(x)
        return x

    n = 0
    while n < N:
        kept.append(forward(x))
        n += 1


def kept_through_one_layer():
    x, one = torch.randn(4, 64, device="cuda"), torch.nn.Sequential(torch.nn.Linear(64, 64, device="cuda"))
    for _ in range(N):
        kept.append(one(x))


def kept_by_turns():
    """One branch in every other iteration: each stands later in the code than the other once."""
    x = batch()
    for n in range(N):
        if n % 2:
            kept.append(net(x))
        else:
            kept.append(torch.relu(x))


class Trainer:
    def run(self):
        for self.iteration in range(N):
            self.output = torch.relu(self.x)
            if self.iteration % 3:
                kept.append(self.output)


def kept_with_an_attribute():
    """The items of the loop go to an attribute: no variable shows that another iteration began."""
    trainer = Trainer()
    trainer.x = batch()
    trainer.run()


def kept_with_a_closure():
    """The variable of the loop is one that a function inside has, too."""
    x, last = batch(), None
    number = lambda: n
    for n in range(N):
        last = torch.relu(x)
        if number() % 3:
            kept.append(last)


def kept_by_c():
    """Another function of C calls in each iteration."""
    import contextvars
    import functools

    step = functools.partial(lambda x: kept.append(net(x)))
    x = batch()
    for _ in range(N // 2):
        contextvars.copy_context().run(step, x)
    for _ in range(N // 2):
        step(x)


def kept_in_epochs():
    x = batch()
    for _ in range(N // 6):
        for _ in range(6):
            kept.append(net(x))


def kept_in_steps_of_one():
    """The variable of the outer loop is given another value in the inner one: that is no iteration."""
    x = batch()
    for x in [x] * N:
        for _ in range(3):
            x = x + x.mean()
        kept.append(x)


def kept_by_threads():
    """A thread for each, which makes one call and leaves nothing behind but what is kept now and then."""
    x = batch()

    def handle(n):
        out = net(x)
        if n % 3 == 0:
            kept.append(out)

    for n in range(N):
        thread = threading.Thread(target=handle, args=(n,))
        thread.start()
        thread.join()


def kept_by_threads_each_time():
    x = batch()

    def handle():
        kept.append(net(x))

    for n in range(N):
        thread = threading.Thread(target=handle)
        thread.start()
        thread.join()


def in_a_module(text):
    """Runs a program that has no local variables."""
    exec(compile(text, "<program>", "exec"), {**globals(), "x": batch()})


def kept_by_turns_of_a_module():
    in_a_module("""
for n in range(N):
    if n % 2:
        kept.append(net(x))
    else:
        kept.append(torch.relu(x))
""")


def kept_in_epochs_of_a_module():
    in_a_module("""
with torch.no_grad():
    for epoch in range(N // 6):
        for n, item in enumerate([x] * 6):
            if n % 3 == 1:
                kept.append(torch.relu(x))
            else:
                kept.append(net(x))
""")


def awaited():
    async def request(n):
        x = batch()
        kept.append(net(x))

    async def main():
        for n in range(N):
            await request(n)

    asyncio.run(main())


def awaited_through_two():
    async def request(n):
        x = batch()
        await asyncio.sleep(0)
        kept.append(net(x))

    async def handle(n):
        await request(n)

    async def main():
        for n in range(N):
            await handle(n)

    asyncio.run(main())


def awaited_by_turns():
    async def turn(session, n):
        x = batch()
        await asyncio.sleep(0)
        kept.append(net(x))

    async def main():
        for session in range(N // 8):
            for n in range(8):
                await turn(session, n)

    asyncio.run(main())


def awaited_in_two():
    async def fetch():
        await asyncio.sleep(0)
        return batch()

    async def answer(x):
        await asyncio.sleep(0)
        return net(x)

    async def main():
        for _ in range(N):
            kept.append(await answer(await fetch()))

    asyncio.run(main())


def awaited_side_by_side():
    async def request(n):
        x = batch()
        await asyncio.sleep(0)
        kept.append(net(x))

    async def client(count):
        for n in range(count):
            await request(n)

    async def main():
        await asyncio.gather(client(N // 2), client(N // 2))

    asyncio.run(main())


def awaited_by_workers():
    """Workers that take requests from a queue: each stands still again and again, in the middle of a request too."""

    async def infer():
        y = net(batch())
        await asyncio.sleep(0)
        return y

    async def worker(queue):
        while (future := await queue.get()) is not None:
            kept.append(await infer())
            future.set_result(None)

    async def main():
        queue = asyncio.Queue()
        workers = [asyncio.create_task(worker(queue)) for _ in range(2)]
        for _ in range(N):
            future = asyncio.get_running_loop().create_future()
            await queue.put(future)
            await future
        for _ in workers:
            await queue.put(None)
        await asyncio.gather(*workers)

    asyncio.run(main())


def awaited_by_workers_through_two():
    """The same, where what stands still is one call further in, twice in a request."""

    async def layer(x):
        y = net(x)
        await asyncio.sleep(0)
        return torch.cat([y, y, y, y], 1)

    async def infer():
        x = batch()
        for _ in range(2):
            x = await layer(x)
        return x

    async def answer():
        return await infer()

    async def worker(queue):
        while (future := await queue.get()) is not None:
            kept.append(await answer())
            future.set_result(None)

    async def main():
        queue = asyncio.Queue()
        workers = [asyncio.create_task(worker(queue)) for _ in range(2)]
        for _ in range(N // 2):
            futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
            for future in futures:
                await queue.put(future)
            await asyncio.gather(*futures)
        for _ in workers:
            await queue.put(None)
        await asyncio.gather(*workers)

    asyncio.run(main())


def awaited_and_let_go():
    """What the steps keep goes when the coroutine returns: as many frees as the steps made blocks."""

    async def main():
        pairs = []
        for _ in range(N):
            x = batch()
            pairs.append((x, net(x)))
            await asyncio.sleep(0)

    asyncio.run(main())


def streamed():
    async def stream():
        for _ in range(N):
            await asyncio.sleep(0)
            yield batch()

    async def main():
        async for x in stream():
            kept.append(net(x))

    asyncio.run(main())


def tasks():
    async def main():
        for n in range(N):
            await asyncio.create_task(request(n))

    async def request(n):
        x = batch()
        await asyncio.sleep(0)
        kept.append(net(x))

    asyncio.run(main())


def tasks_let_go():
    """What the tasks made goes when their function returns."""
    made = []

    async def request(n):
        x = batch()
        await asyncio.sleep(0)
        made.append(net(x))

    async def main():
        for n in range(N):
            await asyncio.create_task(request(n))

    asyncio.run(main())


def tasks_at_once():
    async def request(n):
        x = batch()
        await asyncio.sleep(0)
        kept.append(net(x) * 2)

    async def main():
        await asyncio.gather(*(request(n) for n in range(N)))

    asyncio.run(main())


def threads():
    for n in range(N):
        thread = threading.Thread(target=answer, args=(n,))
        thread.start()
        thread.join()


def threads_at_once():
    for _ in range(N // 4):
        group = [threading.Thread(target=answer, args=(n,)) for n in range(4)]
        for thread in group:
            thread.start()
        for thread in group:
            thread.join()


def pool():
    with ThreadPoolExecutor(3) as executor:
        list(executor.map(answer, range(N)))


canvas = torch.zeros(64, device=DEVICE)
styles = {}


def paint(n):
    """Most of them find their style, and allocate nothing."""
    if n % 12 not in styles:
        styles[n % 12] = torch.ones(64, device=DEVICE)
    canvas.mul_(0.5)
    canvas.add_(styles[n % 12])


def from_a_cache():
    for n in range(3 * N):
        paint(n)
    return 3 * N


def from_a_cache_by_a_thread():
    requests = queue.Queue()

    def work():
        while (n := requests.get()) is not None:
            paint(n)

    thread = threading.Thread(target=work)
    thread.start()
    for n in range(3 * N):
        requests.put(n)
    requests.put(None)
    thread.join()
    return 3 * N


def from_a_cache_by_a_pool():
    with ThreadPoolExecutor(2) as executor:
        for n in range(3 * N):
            executor.submit(paint, n)
    return 3 * N


def from_a_cache_by_a_graph():
    """One graph for each size, which is made when it is first needed."""
    graphs = {}

    def replay(n):
        if n not in graphs:
            graphs[n] = torch.cuda.CUDAGraph(), torch.zeros(64 * (n + 1), device=DEVICE)
            with torch.cuda.graph(graphs[n][0]):
                graphs[n][1].add_(1)
        graphs[n][0].replay()

    for n in range(3 * N):
        replay(n % 12)
    return 3 * N


def touch(n):
    """Once its style is there, all that shows is one call."""
    if n % 12 not in styles:
        styles[n % 12] = torch.ones(64, device=DEVICE)
    canvas.add_(styles[n % 12])


class Counter:
    n = 0

    def touch(self):
        touch(self.n)
        self.n += 1


def touched_in_a_while():
    counter = Counter()
    while counter.n < 20 * N:
        counter.touch()
    return 20 * N


def touched_by_c():
    list(map(touch, range(20 * N)))
    return 20 * N


def pages_touched():
    """Requests of one to four pages each: the loop within begins again."""
    pages = [torch.ones(64, device=DEVICE) for _ in range(4)]

    def serve(n):
        for page in [pages[k] for k in range(1 + n * n % 4)]:
            page.add_(1)
        if n % 12 == 0:
            kept.append(torch.ones(64, device=DEVICE))

    n = 0
    while n < 3 * N:
        serve(n)
        n += 1
    return 3 * N


def touched_over_a_generator():
    def numbers():
        for n in range(3 * N):
            yield n

    here = [0]
    for here[0] in numbers():
        canvas.add_(1)
        if here[0] % 12 == 0:
            kept.append(torch.ones(64, device=DEVICE))
    return 3 * N


def gathered():
    """Requests side by side, two at a time, each of which awaits two parts of it."""
    into, out = nn.Linear(16, 64).to(DEVICE), nn.Linear(64, 16).to(DEVICE)

    async def part(layer, x):
        await asyncio.sleep(0)
        return layer(x)

    async def handle():
        kept.append(await part(out, await part(into, batch())))

    async def serve():
        for _ in range(N):
            await asyncio.gather(handle(), handle())

    asyncio.run(serve())
    return 2 * N


def gathered_and_summed_up():
    """Waves of requests side by side, whose answers each wave sums up."""

    async def request(n):
        y = net(batch())
        kept.append(y)
        await asyncio.sleep(0)
        return y

    async def serve():
        for _ in range(N):
            answers = await asyncio.gather(*(request(n) for n in range(4)))
            sum(y.mean().item() for y in answers)

    asyncio.run(serve())
    return 4 * N


def pool_fed_slowly_at_first():
    """The first items are gone when the next are made, so that these get their memory."""
    with ThreadPoolExecutor(1) as executor:
        for n in range(4):
            executor.submit(answer, n).result()
        list(executor.map(answer, range(4, N)))


class Trained:
    """What optimizers step."""

    def __init__(self):
        self.net = nn.Linear(16, 4).to(DEVICE)
        torch.set_grad_enabled(True)

    def step(self, optimizer):
        loss = self.net(batch()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(loss.detach())

    def sgd(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)


def executed():
    """Cells of a notebook: each is compiled anew, and trains by hand."""
    cell = """
with torch.enable_grad():
    loss = net(batch()).mean()
    loss.backward()
for p in net.parameters():
    p -= 0.01 * p.grad
    p.grad = None
kept.append(torch.ones(8, 16).to(DEVICE))
"""
    for n in range(3 * N):
        globals()["n"] = n
        exec(compile(cell, f"<cell {n}>", "exec"), globals())
    return 3 * N


def layers_by_hand():
    """A loop over layers in every step, with more rounds than there are steps."""
    layers = [nn.Linear(16, 16, device=DEVICE) for _ in range(N + 4)]
    for _ in range(N):
        with torch.enable_grad():
            x = batch()
            for layer in layers:
                x = layer(x).relu()
            x.mean().backward()
        for layer in layers:
            layer.weight -= 0.01 * layer.weight.grad
            layer.weight.grad = layer.bias.grad = None
        kept.append(x.detach())


def deepening():
    """A loop that comes again at every depth of a recursion, most of them after it was chosen."""

    def level(depth):
        for _ in range(10):
            with torch.enable_grad():
                net(batch()).square().mean().backward()
            for parameter in net.parameters():
                parameter.data -= 0.01 * parameter.grad
                parameter.grad = None
            answer(0)
        if depth < 30:
            level(depth + 1)

    level(1)
    return 300


def fed_training():
    trained = Trained()
    optimizer = trained.sgd()

    def load():
        for _ in range(N):
            x = batch()
            yield x + 1

    for x in load():
        trained.step(optimizer)


def unpacked_training():
    """A generator expression in every step."""
    trained = Trained()
    optimizer = trained.sgd()

    def train():
        for _ in range(N):
            x, y = (t.to(DEVICE) * 2 for t in (torch.ones(8), torch.ones(4)))
            trained.step(optimizer)

    train()


def second_optimizer():
    trained = Trained()
    first, second = trained.sgd(), torch.optim.AdamW(trained.net.parameters())
    for _ in range(N - 9):
        trained.step(first)
    for _ in range(9):
        trained.step(second)


def folds():
    for _ in range(N // 6):
        trained = Trained()
        optimizer = trained.sgd()
        for _ in range(6):
            trained.step(optimizer)


def optimizer_each_step():
    trained = Trained()
    for _ in range(N):
        optimizer = trained.sgd()
        trained.step(optimizer)


def one_optimizer_after_some():
    """A critic every step, its generator every fifth: in the same iteration."""
    first, second = Trained(), Trained()
    critic, generator = first.sgd(), second.sgd()
    for n in range(N):
        first.step(critic)
        if n % 5 == 4:
            second.step(generator)


def critics_turns():
    """A loop of a critic's turns, then one of the generator's: in the same iteration."""
    first, second = Trained(), Trained()
    critic, generator = first.sgd(), second.sgd()
    for _ in range(N):
        for _ in range(3):
            first.step(critic)
        second.step(generator)


def two_in_a_loop():
    both = Trained(), Trained()
    optimizers = [one.sgd() for one in both]
    for _ in range(N):
        for one, optimizer in zip(both, optimizers):
            one.step(optimizer)


def trained_and_evaluated_by_one_loop():
    """One function goes over the batches, and trains if it is given an optimizer."""
    trained = Trained()
    optimizer = trained.sgd()

    def run_epoch(batches, optimizer=None):
        for _ in range(batches):
            if optimizer:
                trained.step(optimizer)
            else:
                net(batch())

    for _ in range(6):
        run_epoch(N, optimizer)
        run_epoch(9)
    return 6 * (N + 9)


def phases():
    """Training and evaluation go through the very same lines."""
    trained = Trained()
    optimizer = trained.sgd()
    for _ in range(6):
        for phase in "train", "evaluate":
            for _ in range(N if phase == "train" else 9):
                with torch.set_grad_enabled(phase == "train"):
                    loss = trained.net(batch()).mean()
                    if phase == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
    return 6 * (N + 9)


def engines():
    """An engine is a generator that goes on by itself; that of the evaluation runs when an epoch of the training's is over."""
    trained = Trained()
    optimizer = trained.sgd()

    class Engine:
        def __init__(self, process, after_epoch=()):
            self.process, self.after_epoch, self.stopped = process, after_epoch, False

        def run(self, batches, epochs):
            for _ in self.going(batches, epochs):
                return

        def going(self, batches, epochs):
            epoch = 0
            while epoch < epochs:
                yield from self.over(batches)
                for handle in self.after_epoch:
                    handle()
                epoch += 1

        def over(self, batches):
            iteration = 0
            while iteration < batches:
                self.process()
                if self.stopped:
                    yield
                iteration += 1

    evaluator = Engine(lambda: net(batch()))
    trainer = Engine(lambda: trained.step(optimizer), [lambda: evaluator.run(9, 1)])
    trainer.run(N, 6)
    return 6 * (N + 9)


def made():
    layers = []
    for _ in range(60):
        layers.append(nn.Linear(16, 16, device=DEVICE))
    nn.Sequential(*layers)(batch())
    return 0


def streams_left():
    """Each request begins a stream, reads a few of its answers, and leaves it standing."""
    streams = {}

    def stream():
        state = torch.zeros(8, 16, device=DEVICE)
        for n in range(9):
            state = state + n
            yield float(state.sum())

    def request(n):
        streams[n] = stream()
        for _ in range(3):
            next(streams[n])

    for n in range(N):
        request(n)


def streams_broken_off():
    """Each request reads a stream in a loop of its own, and breaks off."""
    streams = []

    def stream():
        state = torch.zeros(8, 16, device=DEVICE)
        for n in range(9):
            state = state + n
            yield float(state.sum())

    for n in range(N):
        answers = stream()
        for count, answer in enumerate(answers):
            if count == 5:
                break
        streams.append(answers)


def streamed_to_the_end():
    """The loop is a generator's, and what it has kept goes when the function returns that goes over it."""

    def answers(states):
        for n in range(N):
            states.append(torch.zeros(64, 64, device=DEVICE) * n)
            yield n

    def main():
        states = []
        for _ in answers(states):
            pass

    main()


def streams_by_turns():
    """Every second stream is given up early and kept, and the others run to their end."""

    def answer_in_parts(parts):
        state = batch()
        for _ in range(parts):
            state = net(batch())
            yield state.sum().item()

    for n in range(N):
        answers = answer_in_parts(5)
        for count, _ in enumerate(answers):
            if n % 2 and count == 2:
                break
        if n % 2:
            kept.append(answers)


def streams_of_clients():
    """The same in a function that is called for each, and a stream is over when nothing of it is left."""
    streams = {}

    def answer_in_parts(n):
        state = batch()
        for _ in range(5):
            other = state * 2
            yield n
        streams.pop(n)

    def client(n):
        streams[n] = answer_in_parts(n)
        for count, _ in enumerate(streams[n]):
            if n % 3 == 2 and count == 2:
                break

    for n in range(N):
        client(n)


async def tokens(n):
    """A stream of `n`; waits in between, and nothing else makes a tensor until it goes on."""
    state = torch.ones(8, 16, device=DEVICE)
    kept.append(state)
    for token in range(n):
        state * 2
        await asyncio.sleep(0)
        yield token


def streams_read_or_broken_off():
    """What a broken-off one leaves shows the next iteration better than one that was read to its end does."""

    def stream(n):
        x = torch.zeros(8, device=DEVICE)
        kept.append(x)
        for _ in range(4):
            x = x - 0.1
            yield x.mean().item()

    def answer_by(n):
        for i, _ in enumerate(stream(n)):
            if n % 4 == 1 and i == 1:
                break

    for n in range(N):
        answer_by(n)


def calls_that_come_further():
    """The first event of a call is at a later instruction than the last one of the call before."""

    def one_of_two(n):
        if n % 4 == 1:
            kept.append(torch.zeros(8, device=DEVICE))
        else:
            kept.append(torch.ones(8, device=DEVICE))

    def call(n):
        one_of_two(n)

    for n in range(N):
        call(n)


def async_broken_off():
    """Each request reads a few of a stream, which is left standing until the event loop closes all of them at its end."""

    async def answers():
        state = torch.ones(8, 16, device=DEVICE)
        for answer in range(9):
            other = state * 2
            await asyncio.sleep(0)
            yield answer

    async def main():
        for _ in range(3 * N):
            kept.append(answers())
            async for answer in kept[-1]:
                if answer == 2:
                    break

    asyncio.run(main())
    return 3 * N


def async_nested():
    async def pairs(n):
        half = None
        async for token in tokens(n):
            if half is not None:
                yield half, token
            half = token if half is None else None

    async def main():
        for _ in range(N):
            async for _ in pairs(6):
                pass

    asyncio.run(main())


def async_read_by_calls():
    """What a stream needs is made before its first item: each call reads another one."""

    async def answers():
        state = torch.ones(8, 16, device=DEVICE) * 2
        for answer in range(4):
            yield answer

    async def serve():
        async for _ in answers():
            pass

    async def main():
        for _ in range(3 * N):
            await serve()

    asyncio.run(main())
    return 3 * N


def async_read_or_left():
    """So it is, and some are left at their second item and kept."""

    async def answers():
        state = torch.ones(8, 16, device=DEVICE) * 2
        for answer in range(4):
            yield answer
        del state

    async def serve(number):
        kept.append(answers())
        async for answer in kept[-1]:
            if number % 4 == 3 and answer == 1:
                break

    async def main():
        for number in range(3 * N):
            await serve(number)

    asyncio.run(main())
    return 3 * N


def async_clients():
    """Each is a task that reads one stream, some at once."""

    async def client(n):
        async for _ in tokens(4 + n % 3):
            pass

    async def main():
        for n in range(2 * N):
            await asyncio.gather(*(client(n + k) for k in range(6)))

    asyncio.run(main())
    return 12 * N


def async_clients_by_turns():
    """Each asks again and again, and awaits a while in the middle of each answer."""

    async def answered(n):
        for _ in range(4):
            y = net(batch())
            await asyncio.sleep(0)
        kept.append(y)

    async def client(n):
        for request in range(12):
            await answered(request)

    async def main():
        await asyncio.gather(*(client(n) for n in range(6)))

    asyncio.run(main())
    return 72


def async_clients_of_streams():
    async def client(n):
        for request in range(12):
            kept.append([token async for token in tokens(4)])

    async def main():
        await asyncio.gather(*(client(n) for n in range(6)))

    asyncio.run(main())
    return 72


def batched_by_a_server():
    """Requests wait in a queue, from which one task takes four at a time: its batches do the work."""
    queue = asyncio.Queue()

    async def server():
        while True:
            waiting = [await queue.get() for _ in range(4)]
            y = net(torch.cat([x for x, _ in waiting]))
            kept.append(y)
            for (_, answer), row in zip(waiting, y):
                answer.set_result(row)

    async def request(n):
        answer = asyncio.get_running_loop().create_future()
        await queue.put((batch(), answer))
        (await answer).sum().item()

    async def main():
        task = asyncio.create_task(server())
        for n in range(N):
            await asyncio.gather(*(request(n) for _ in range(8)))
        task.cancel()

    asyncio.run(main())
    return 2 * N


def async_clients_that_list():
    async def client(n):
        return [token async for token in tokens(4 + n % 3)]

    async def main():
        for n in range(2 * N):
            await asyncio.gather(*(client(n + k) for k in range(6)))

    asyncio.run(main())
    return 12 * N


def async_clients_that_leave():
    """Every fourth leaves its stream standing."""
    streams = []

    async def client(n):
        stream = tokens(6)
        async for token in stream:
            if n % 4 == 0 and token == 2:
                streams.append(stream)
                return

    async def main():
        for n in range(2 * N):
            await asyncio.gather(*(client(6 * n + k) for k in range(6)))

    asyncio.run(main())
    return 12 * N


def async_clients_that_await():
    """The same without streams: each awaits one function at one place."""

    async def answer_in_parts(n):
        state = torch.ones(8, 16, device=DEVICE)
        kept.append(state)
        for _ in range(n):
            state * 2
            await asyncio.sleep(0)

    async def client(n):
        await answer_in_parts(4 + n % 3)

    async def main():
        for n in range(2 * N):
            await asyncio.gather(*(client(n + k) for k in range(6)))

    asyncio.run(main())
    return 12 * N


def async_workers():
    """Three workers read a stream for each that comes by a queue."""

    async def worker(requests):
        while (n := await requests.get()) is not None:
            async for _ in tokens(n):
                pass

    async def main():
        requests = asyncio.Queue()
        workers = [asyncio.create_task(worker(requests)) for _ in range(3)]
        for n in range(3 * N):
            requests.put_nowait(4 + n % 5)
        for _ in workers:
            requests.put_nowait(None)
        await asyncio.gather(*workers)

    asyncio.run(main())
    return 3 * N


def async_over_a_queue():
    async def of(queue):
        while (x := await queue.get()) is not None:
            yield x

    async def feed(queue):
        for _ in range(N):
            await queue.put(batch())
        await queue.put(None)

    async def work(queue):
        async for x in of(queue):
            kept.append(net(x) * 2)

    async def main():
        queue = asyncio.Queue(2)
        await asyncio.gather(feed(queue), work(queue))

    asyncio.run(main())


def async_handed_to_a_worker():
    """A client's requests are answered by a task, which comes round as often as the client does."""

    async def answering(requests):
        while True:
            x, answer = await requests.get()
            answer.set_result(net(x) * 2)
            del x, answer

    async def ask(requests):
        answer = asyncio.get_running_loop().create_future()
        await requests.put((batch(), answer))
        return await answer

    async def main():
        requests = asyncio.Queue()
        worker = asyncio.create_task(answering(requests))
        for _ in range(N):
            kept.append(await asyncio.create_task(ask(requests)))
            total = (kept[-1] + 1).mean()
        worker.cancel()
        return total

    asyncio.run(main())


def decoding_after_a_prompt():
    """Two layers answer a prompt, and then one token after the other; what a token takes is freed where it was asked for."""
    layers = [torch.nn.Linear(16, 16).cuda() for _ in range(2)]

    def forward(x, caches):
        for i, layer in enumerate(layers):
            x = torch.relu(layer(x))
            caches[i] = x if caches[i] is None else torch.cat([caches[i], x])
        return x[-1:]

    def answer():
        caches = [None, None]
        x = forward(torch.randn(8, 16, device="cuda"), caches)
        for _ in range(12):
            x = forward(x, caches)

    for _ in range(200):
        answer()
    return 200 * 12


def decorated():
    """An evaluation under a decorator of a library's, in a loop of few rounds, and no optimizer anywhere."""

    @torch.no_grad()
    def evaluate():
        for n in range(20):
            answer(n)

    for _ in range(3):
        evaluate()
    return 60


def handed_out():
    """Each round has a pool work for it: the steps are the rounds, not what the pool's threads take."""
    with ThreadPoolExecutor(2) as pool:
        for n in range(N):
            parts = [done.result() for done in [pool.submit(lambda: net(batch())) for _ in range(4)]]
            kept.append(torch.stack(parts))


def handled():
    """A library's constructor calls what answers a request."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            kept.append(net(batch()).detach())

    for n in range(N):
        Handler(None, None, None)


def scheduled():
    """A library's loop calls for one request after the other, each of which takes a few rounds."""

    def request():
        state = batch()
        for _ in range(4):
            state = state + net(state).sum()
        kept.append(state)

    requests = sched.scheduler()
    for n in range(N):
        requests.enter(0, n, request)
    requests.run()


def served_by_a_thread():
    """What the thread makes is mostly freed by the client; where it is not, nothing but the thread's variables shows that its
    loop came round."""
    asked, answers, answered = queue.Queue(), {}, threading.Semaphore(0)

    def serve():
        while (request := asked.get()) is not None:
            answers[request] = torch.full((8,), float(request), device=DEVICE)
            answered.release()

    server = threading.Thread(target=serve)
    server.start()
    for n in range(10 * N):
        asked.put(n)
        answered.acquire()
        if n % 10 == 7:
            answers.pop(n)
    asked.put(None)
    server.join()
    return 10 * N


def later_and_deeper():
    """The first loop is chosen long before the second one begins, whose frames are deeper."""
    calibrated = 6000
    for _ in range(calibrated):
        net(batch())

    def deeper(frames):
        if frames:
            return deeper(frames - 1)
        for n in range(N):
            answer(n)

    deeper(12)
    return calibrated + N


def on_main_then_in_a_thread(warm=N):
    for _ in range(warm):
        net(batch())

    def serve():
        for n in range(N):
            answer(n)

    server = threading.Thread(target=serve)
    server.start()
    server.join()
    return warm + N


def long_on_main_then_in_a_thread():
    """The first loop is chosen, and nothing of other threads is looked at then."""
    return on_main_then_in_a_thread(6000) - N


def over_all_so_far():
    """Each round asks all that the rounds before it have kept."""
    for n in range(2 * N):
        total = torch.zeros(4, device=DEVICE)
        for one in kept:
            total = total + net(one)
        kept.append(batch())
    return 2 * N


def over_all_so_far_at_once():
    traces = []
    for n in range(2 * N):
        traces = [trace * 0.9 for trace in traces]
        traces.append(net(batch()))
    return 2 * N


def members_of_a_population():
    """Each generation goes over its members twice."""
    population = [torch.ones(16, 16, device=DEVICE) for _ in range(12)]
    for _ in range(2 * N):
        population = [torch.tanh(member @ member) for member in population]
        scores = [member.sum() for member in population]
        kept.append(scores[0])
    return 2 * N


def trained_in_threads():
    """Each thread trains a model of its own, with an optimizer of its own."""

    def train():
        trained = Trained()
        optimizer = trained.sgd()
        for _ in range(N):
            trained.step(optimizer)

    group = [threading.Thread(target=train) for _ in range(3)]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    return 3 * N


def trained_by_a_pool():
    """A search of hyperparameters: two at a time, more models than threads."""

    def train(rate):
        trained = Trained()
        optimizer = torch.optim.SGD(trained.net.parameters(), lr=rate)
        for _ in range(N // 2):
            trained.step(optimizer)

    with ThreadPoolExecutor(2) as executor:
        for done in [executor.submit(train, 0.1 / n) for n in range(1, 7)]:
            done.result()
    return 3 * N


def in_two_threads_by_turns():
    """Two threads that do not do the same, as often as each other."""

    def infer():
        with torch.no_grad():
            for _ in range(N):
                kept.append(net(batch()))

    def evaluate():
        with torch.no_grad():
            for _ in range(N):
                kept.append(net(batch()).sum())

    group = [threading.Thread(target=target) for target in (infer, evaluate)]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    return 2 * N


def in_two_threads_some_rounds_each():
    """Two threads that wait for each other every few rounds: each does work of its own."""
    meet = threading.Barrier(2)

    def infer():
        with torch.no_grad():
            for n in range(N):
                kept.append(net(batch()))
                if n % 3 == 2:
                    meet.wait()

    def evaluate():
        with torch.no_grad():
            for n in range(N):
                kept.append(net(batch()).sum())
                if n % 3 == 2:
                    meet.wait()

    group = [threading.Thread(target=target) for target in (infer, evaluate)]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    return 2 * N


def lengths():
    """As many tokens as an answer has: no two are alike."""
    return [5 + 37 * n % 53 for n in range(2 * N)]


def generate(tokens):
    """One token after the other, with a cache that grows, and is kept."""
    with torch.no_grad():
        x, cache = batch(), None
        for _ in range(tokens):
            y = net[0](x[-1:])
            cache = y if cache is None else torch.cat([cache, y])
            x = torch.cat([x, y])[-8:]
        kept.append(cache)


def answers():
    for tokens in lengths():
        generate(tokens)
    return 2 * N


def answers_by_a_thread():
    requests, answered = queue.Queue(), queue.Queue()

    def serve():
        while (tokens := requests.get()) is not None:
            answered.put(generate(tokens))

    server = threading.Thread(target=serve)
    server.start()
    for tokens in lengths():
        requests.put(tokens)
        answered.get()
    requests.put(None)
    server.join()
    return 2 * N


def answers_by_a_thread_each():
    for tokens in lengths():
        thread = threading.Thread(target=generate, args=(tokens,))
        thread.start()
        thread.join()
    return 2 * N


def answers_by_a_pool():
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(generate, lengths()))
    return 2 * N


def answers_by_a_server():
    """A library's loop has a thread answer each."""
    import http.server
    import urllib.request

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            generate(int(self.path[1:]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    proxies = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for tokens in lengths():
        proxies.open(f"http://127.0.0.1:{server.server_address[1]}/{tokens}").read()
    server.shutdown()
    thread.join()
    server.server_close()
    return 2 * N


def answers_awaited():
    async def answer(tokens):
        x, cache = batch(), None
        for _ in range(tokens):
            y = net[0](x[-1:])
            cache = y if cache is None else torch.cat([cache, y])
            x = torch.cat([x, y])[-8:]
            await asyncio.sleep(0)
        kept.append(cache)

    async def main():
        for tokens in lengths():
            await answer(tokens)

    asyncio.run(main())
    return 2 * N


def epochs_of_two_lengths():
    """One function goes over the batches of a training set and then of a small one: its rounds are steps all the same."""

    def go_over(batches):
        for _ in range(batches):
            answer(0)

    for _ in range(16):
        go_over(18)
        go_over(12)
    return 16 * 30


def warmed_up():
    for _ in range(10):
        net(batch())
    for n in range(4 * N):
        answer(n)
    return 4 * N


def looked_at_in_the_end():
    """What a few rounds at the end do does not hide what leaked all the time before."""
    for n in range(4 * N):
        answer(n)
    for _ in range(10):
        net(batch())
    return 4 * N


def sizes_tried():
    """A loop in a loop looks for the size of a batch."""
    for size in (1, 2, 4, 8):
        for _ in range(4):
            net(torch.ones(size, 16).to(DEVICE))
    for n in range(4 * N):
        answer(n)
    return 4 * N


def learn(model, loss):
    """An optimizer's step by hand."""
    loss.backward()
    for p in model.parameters():
        p.data -= 0.1 * p.grad
        p.grad = None


def sizes_tried_in_training():
    model = nn.Linear(16, 4).to(DEVICE)
    with torch.enable_grad():
        for size in range(1, 13):
            model(torch.ones(size, 16).to(DEVICE)).mean().backward()
        for _ in range(4 * N):
            loss = model(batch()).square().mean()
            learn(model, loss)
            kept.append(loss.detach())
    return 4 * N


def prepared():
    """As many batches are made as there are steps."""
    data = []
    for _ in range(4 * N):
        x = torch.randn(8, 16).to(DEVICE)
        data.append(x / x.norm())
    for x in data:
        y = net(x)
        kept.append(y.sum())
    return 4 * N


def prepared_by_an_expression():
    """One event each."""
    data = [torch.zeros(8, device=DEVICE) for _ in range(4 * N)]
    for x in data:
        kept.append(x + 1)
    return 4 * N


def prepared_for_a_training():
    """More than it takes."""
    data, model = [], nn.Linear(16, 4).to(DEVICE)
    for _ in range(6 * N):
        x = torch.randn(8, 16).to(DEVICE)
        data.append((x - x.mean()) / x.norm())
    with torch.enable_grad():
        for x in data[: 4 * N]:
            loss = model(x).square().mean()
            learn(model, loss)
            kept.append(loss.detach())
    return 4 * N


def nearest_in_an_archive():
    """A generator expression goes over what each round adds to."""
    archive = []

    def distance(x, other):
        return (x - other).norm().item()

    for n in range(5 * N):
        x = net(batch())
        min((distance(x, other) for other in archive), default=0)
        archive.append(x)
    kept.append(archive)
    return 5 * N


def sorted_by_an_archive():
    """C asks for it, several times in a round."""
    archive = []

    def novelty(x):
        return sum(sorted((x - other).norm().item() for other in archive)[:3])

    for n in range(2 * N):
        ones = [net(batch()) for _ in range(3)]
        ones.sort(key=novelty)
        archive.append(ones[0])
    kept.append(archive)
    return 2 * N


def summed_up_after_each_epoch():
    """A generator expression goes over what each epoch has kept."""
    for _ in range(6):
        outputs = []
        for _ in range(N):
            outputs.append(net(batch()))
        print(sum(y.mean().item() for y in outputs), file=sys.stderr)
        kept.append(outputs)
    return 6 * N


def few_folds_by_hand():
    """Five models, each of three epochs: the epochs are the steps, since there are enough of them."""
    with torch.enable_grad():
        for _ in range(5):
            model = nn.Linear(16, 4).to(DEVICE)
            for _ in range(3):
                learn(model, model(batch()).mean())
            kept.append(model(batch()).mean().detach())
    return 15


def straight():
    answer(0)
    answer(1)
    return 0


steps = globals()[sys.argv[1]]()
print(N if steps is None else steps)
