"""A variable has the blocks for a while, or refers to what keeps them; something that outlasts it does so too: lasting.py WAY"""
import sys

import torch

net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)


def train():
    optimizer.zero_grad()
    net(torch.randn(4, 64, device="cuda")).mean().backward()
    optimizer.step()


def curve_of(steps):
    curve = []
    for _ in range(steps):
        curve.append(torch.zeros(64, device="cuda"))
        train()
    return curve


def handed_on():
    results = {}
    for rate in range(4):
        results[rate] = curve_of(50)


class Runner:
    def __init__(self):
        self.history = []

    def epoch(self):
        outputs = []
        for _ in range(25):
            outputs.append(torch.zeros(64, device="cuda"))
            train()
        self.history.append(outputs)


def epochs():
    runner = Runner()
    for _ in range(8):
        runner.epoch()


class Pipeline:
    def __init__(self):
        self.intermediates = []

    def draw(self):
        frames = self.intermediates
        for _ in range(15):
            frames.append(torch.zeros(64, device="cuda"))
            train()


def attribute():
    pipeline = Pipeline()
    for _ in range(10):
        pipeline.draw()


def fit(member, steps):
    own = torch.optim.RMSprop(member.parameters(), 1e-3)
    for _ in range(steps):
        x = torch.zeros(64, device="cuda")
        member.weight.register_hook(lambda g, x=x: None)
        own.zero_grad()
        member(torch.randn(4, 64, device="cuda")).mean().backward()
        own.step()


def hooks():
    members = []
    for _ in range(3):
        members.append(torch.nn.Linear(64, 64).cuda())
        fit(members[-1], 50)


class Prefetcher:
    def __init__(self):
        self.in_flight = []

    def __iter__(self):
        return self

    def __next__(self):
        if len(self.in_flight) == 120:
            raise StopIteration
        self.in_flight.append(torch.zeros(64, device="cuda"))
        return self.in_flight[-1]


def loop():
    for _ in Prefetcher():
        train()


globals()[sys.argv[1]]()
