"""Keeps one tensor of every step in each way a Python program can keep one."""

import collections
import functools
import gc
import sys
import threading

import torch


def tensor():
    return torch.empty(256, device="cuda")


class Trainer:
    def __init__(self):
        self.history = {"loss": []}


class Registry:
    items = []


class Slotted:
    __slots__ = ("kept",)

    def __init__(self):
        self.kept = []


class Node:
    pass


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.extra = tensor()
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(tensor())
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def pusher():
    box = []

    def push(t):
        box.append(t)

    return push


def remember(t, seen=[]):
    seen.append(t)


def recall(t, *, past=[]):
    past.append(t)


@functools.lru_cache(maxsize=None)
def known(t):
    return 0


def fails(t):
    raise ValueError("as it should")


def fails_below(t):
    aside = t.clone()
    fails(t)
    del aside


def suspended(t):
    yield
    del t


def elsewhere(wanted, done, stop):
    aside = []
    while not stop.is_set():
        if wanted.acquire(timeout=0.05):
            aside.append(tensor())
            done.release()


trainer = Trainer()
slotted = Slotted()
push = pusher()
errors, tracebacks = [], []
recent = collections.deque()
several = set()
ordered = collections.OrderedDict()
first_list, second_list = [], []
graphs, contexts, saved = [], [], []
frozen = []
views = []


def main():
    gc.disable()
    weight = torch.nn.Parameter(torch.ones(64, device="cuda"))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).to("cuda")
    optimizer = torch.optim.SGD([weight, *model.parameters()], lr=0.1)
    features = []
    model[0].register_forward_hook(lambda module, inputs, output: features.append(tensor()))
    kept, pending = [], []
    wanted, done, stop = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    thread = threading.Thread(target=elsewhere, args=(wanted, done, stop))
    thread.start()
    for _ in range(40):
        trainer.history["loss"].append(tensor())
        kept.append(tensor())
        Registry.items.append(tensor())
        slotted.kept.append(tensor())
        push(tensor())
        remember(tensor())
        recall(tensor())
        known(tensor())
        recent.append(tensor())
        several.add(tensor())
        ordered[len(ordered)] = tensor()
        optimizer.state[weight].setdefault("trail", []).append(tensor())
        try:
            fails(tensor())
        except ValueError as error:
            errors.append(error)
        try:
            fails_below(tensor())
        except ValueError:
            tracebacks.append(sys.exc_info()[2])
        generator = suspended(tensor())
        next(generator)
        pending.append(generator)
        leaf = torch.zeros(64, device="cuda", requires_grad=True)
        leaf.grad = torch.zeros(64, device="cuda")
        frozen.append(leaf)
        views.append(tensor()[:1])
        both = tensor()
        first_list.append(both)
        second_list.append((both, 1))
        graphs.append((weight * tensor()[:64]).sum())
        contexts.append(Kept.apply(weight))
        saved.append(Saved.apply(weight))
        cycle = Node()
        cycle.me = cycle
        cycle.held = tensor()
        wanted.release()
        done.acquire()
        del leaf, both, cycle, generator
        loss = (weight * 2).sum() + model(torch.ones(2, 8, device="cuda")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stop.set()
    thread.join()


main()
