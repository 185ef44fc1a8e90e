"""What holds it is gone when the program ends, or a part of a cycle by then: early.py WAY [STEPS]"""
import asyncio
import gc
import sys
import threading
import time

import torch

net = torch.nn.Linear(64, 64).cuda()
cell = torch.nn.GRUCell(32, 32).cuda()
head = torch.nn.Linear(32, 4).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)


def train():
    optimizer.zero_grad()
    net(torch.randn(4, 64, device="cuda")).mean().backward()
    optimizer.step()


def state(steps):
    state = torch.zeros(4, 32, device="cuda")
    for _ in range(steps):
        state = cell(torch.randn(4, 32).cuda(), state)
        head(state).max().item()


def total(steps):
    total = 0.0
    for _ in range(steps):
        total = total + head(torch.randn(4, 32).cuda()).square().mean()
    return total.item()


def waited_for(steps):
    def work():
        kept = []
        x = torch.zeros(4, 32, device="cuda")
        for _ in range(steps):
            kept.append(x + 1)
            time.sleep(0.005)  # the next batch is late

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Server:
    def __init__(self):
        self.net = torch.nn.Linear(256, 256).cuda()
        self.sessions = {}
        self.requests = asyncio.Queue(4)

    @torch.no_grad()
    def reply(self, i):
        out = torch.randn(4, 256).cuda()
        for _ in range(8):
            out = self.net(out).relu()
        self.sessions[i] = out

    @torch.no_grad()
    async def work(self):
        while True:
            i, x = await self.requests.get()
            out = x.to("cuda") * 2
            self.sessions[i] = out + 1
            del x, out
            await asyncio.sleep(0)
            self.requests.task_done()


def served(steps):
    server = Server()
    for i in range(steps):
        server.reply(i)


def coroutine(steps):
    async def run():
        server = Server()
        workers = [asyncio.create_task(server.work()) for _ in range(3)]
        for i in range(steps):
            await server.requests.put((i, torch.randn(8, 128)))
        await server.requests.join()
        for worker in workers:
            worker.cancel()

    asyncio.run(run())


def generator(steps):
    def steps_of(kept):
        for _ in range(steps):
            kept.append(torch.empty(256, device="cuda"))
            train()
            yield

    for _ in steps_of([]):
        pass


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 64)
        self.outputs = []


class Trainer:
    def fit(self, steps):
        self.model = Model()
        object.__setattr__(self.model, "trainer", self)
        self.model.cuda()
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for _ in range(steps):
            loss = self.model.net(torch.randn(32, 64).cuda()).pow(2).mean()
            self.model.outputs.append(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def cycle(steps):
    Trainer().fit(steps)


def collected(steps):
    Trainer().fit(steps)
    gc.collect()


class Checker:
    def __init__(self):
        self.errors = []

    def check(self, out, step):
        if step % 4 == 0:
            raise ValueError(step)

    def run(self, steps):
        for step in range(steps):
            out = torch.empty(512, device="cuda")
            train()
            try:
                self.check(out, step)
            except ValueError as error:
                self.errors.append(error)


def errors(steps):
    Checker().run(steps)


def fails(steps):
    kept = []
    for step in range(steps):
        kept.append(torch.empty(256, device="cuda"))
        train()
    raise SystemError("as it should")


def by_hand(steps):
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))).cuda()
    samples = []
    for _ in range(steps):
        out = model(torch.randn(4, 64, device="cuda"))
        out.square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None
        samples.append(out)


def renewed(steps):
    """A history that is made anew each time, larger; the loop has many events, but too few for it to be chosen."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40))).cuda()
    history = torch.zeros(0, 64, device="cuda")
    for _ in range(steps):
        with torch.no_grad():
            history = torch.cat([history, model(torch.randn(4, 64, device="cuda"))])


globals()[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 120)
