"""A linked list that takes in an output every step: linked.py WAY"""
import sys

import torch

net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)


class Step:
    def __init__(self, value, before):
        self.value = value
        self.before = before


class Payload:
    def __init__(self, value):
        self.value = value


def failed(value):
    raise ValueError


def fails(value, before):
    """Each exception has the one before as its context, by one that caused it."""
    try:
        failed(value)
    except ValueError as error:
        error.__context__ = before
        after = RuntimeError()
        after.__cause__ = error
        return after


def chain(value, before):
    ways = {
        "tuple": lambda: (value, before),
        "object": lambda: Step(value, before),
        "dict": lambda: {"value": value, "before": before},
        "payload": lambda: Step(Payload(value), before),
        "causes": lambda: fails(value, before),
    }
    return ways[sys.argv[1]]()


def main():
    trace = None
    for _ in range(60):
        out = net(torch.randn(8, 64).cuda())
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()
        trace = chain(out.detach(), trace)


main()
