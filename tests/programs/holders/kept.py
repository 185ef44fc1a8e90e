"""Further ways to keep a tensor of every step: kept.py WAY"""
import collections
import contextvars
import gc
import queue
import random
import sys
import threading

import torch

net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
request = contextvars.ContextVar("request")
default = contextvars.ContextVar("default", default=[])
local = threading.local()


class Keeper:
    def __init__(self):
        self.update = self.update
        self.target = []

    def update(self, x):
        self.target.append(x)


def tensor(size=64):
    return torch.zeros(size, device="cuda")  # kept


def main(way, steps):
    request.set([])
    local.kept = []
    memory = collections.deque(maxlen=100_000)
    slots = [None] * 1000
    everything = []
    rows = {}
    chunks = []
    preset = dict.fromkeys(range(1000))
    waiting = queue.Queue(maxsize=1000)
    table = None
    if way in ("array", "ring", "zeros"):
        import numpy

        table = numpy.empty(0, dtype=object)
        if way == "ring":
            table = numpy.full((500, 2), None)
        if way == "zeros":
            table = numpy.zeros(1000, dtype=object)
    for step in range(steps):
        with torch.no_grad():
            x = tensor()
        match way:
            case "context":
                request.get().append(x)
            case "token":
                token = request.set(None)
                request.reset(token)
                request.get().append(x)
            case "default":
                default.get().append(x)
            case "thread":
                local.kept.append(x)
            case "garbage" | "collected":
                (gc.disable if way == "garbage" else gc.enable)()
                Keeper().update(x.view(8, 8))
            case "array":
                longer = numpy.empty(step + 1, dtype=object)
                longer[:step] = table
                longer[step] = x
                table = longer
                del longer
            case "ring":
                table[step, 0] = x
            case "zeros":
                table[step] = (x, step)
            case "rows":
                rows.setdefault(step // 40, [None] * 40)[step % 40] = x
            case "chunks":
                if step == len(chunks):
                    chunks.extend([None] * 16)
                chunks[step] = x
            case "doubled":
                if step == len(chunks):
                    chunks = chunks + [None] * max(8, len(chunks))
                chunks[step] = x
            case "preset":
                preset[step] = x
            case "queue":
                waiting.put(x)
            case "slots":
                slots[step] = x
            case "strided":
                slots[step * 3] = x
            case "sampled" | "redrawn" | "redrawn_twice" | "both":
                memory.append((x, step))
                size = 128 if way.startswith("redrawn") else 40
                # The second one is made in the memory of the one before the first.
                for _ in range(2 if way == "redrawn_twice" else 1):
                    batch = random.sample(list(memory), min(len(memory), size))
                if way == "both":
                    everything.append(x)
        optimizer.zero_grad()
        net(torch.zeros(4, 64, device="cuda")).mean().backward()
        optimizer.step()


main(sys.argv[1], 90)
