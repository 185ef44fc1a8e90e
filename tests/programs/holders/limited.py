"""Collections whose length the program compares with a limit. It is not reached in this run, but for the last one's."""
import torch
from torch import nn

MOST = 1000


class Replay:
    def __init__(self, capacity):
        self.capacity, self.memory, self.at = capacity, [], 0

    def __len__(self):
        return len(self.memory)

    def push(self, *transition):
        if len(self) < self.capacity:
            self.memory.append(transition)
        else:
            self.memory[self.at] = transition
        self.at = (self.at + 1) % self.capacity


class Cache(dict):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def put(self, key, value):
        self[key] = value
        self.evict()

    def evict(self):
        while len(self) > self.size:
            self.pop(next(iter(self)))


class Sessions:
    def __init__(self, limit):
        self.limit, self.of = limit, {}

    def add(self, name, value):
        if name not in self.of and len(self.of) >= self.limit:
            self.of.pop(next(iter(self.of)))
        self.of.setdefault(name, []).append(value)


class Pool:
    def __init__(self, size):
        self.size, self.images, self.used = size, [], 0

    def add(self, image):
        self.images.append(image)
        if len(self.images) > self.size and self.used > 0:
            self.images.pop(0)


def remember(value):
    kept.append(value)
    if len(kept) > MOST:
        del kept[0]


replay, cache, sessions, pool = Replay(10000), Cache(size=500), Sessions(100), Pool(50)
kept, warned = [], []
network = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(150):
    x = torch.empty(16, 64, device="cuda")
    out = network(x)
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    replay.push(torch.empty(1000, device="cuda"), step)  # replay
    cache.put(step, torch.empty(2000, device="cuda"))  # cache
    remember(torch.empty(3000, device="cuda"))  # kept
    warned.append(torch.empty(4000, device="cuda"))  # warned
    if len(warned) > 400:
        print("many")
    sessions.add(step % 6, torch.empty(5000, device="cuda"))  # sessions
    pool.add(torch.empty(6000, device="cuda"))  # pool
    print(f"step {step}", flush=True)
