"""Trains on the GPU in several threads at once, with exceptions thrown out of the depths of PyTorch in between, until
enough was allocated: from plain functions, from generators, from greenlets that take turns in the middle of a model, and
from hooks of a backward pass over CPU tensors.

    unwinding.py ALLOCATIONS    with greenlets where there is the module
"""

import sys
import threading

import torch
from torch import nn

enough = int(sys.argv[1])
count = [0]


def trained():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
    return model, torch.optim.AdamW(model.parameters())


class Doubled(torch.autograd.Function):
    """Python in the middle of the backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 + torch.zeros_like(gradient)


def fail():
    matrix = torch.zeros(3, 3, device="cuda")
    for wrong in (lambda: matrix @ torch.zeros(7, device="cuda"), lambda: (matrix * 2).view(7)):
        try:
            wrong()
        except RuntimeError:
            torch.empty(10, device="cuda")
        else:
            raise SystemExit("nothing was thrown")


def train():
    model, optimizer = trained()
    step = 0
    while count[0] < enough:
        data = torch.zeros(2, 8 + step % 3, 32, device="cuda")
        optimizer.zero_grad()
        Doubled.apply(model(data)).sum().backward()
        optimizer.step()
        if step % 5 == 0:
            fail()
        step += 1
        count[0] = torch.cuda.memory_stats()["allocation.all.allocated"]


def steps(depth):
    """A generator that delegates to others."""
    if depth:
        yield from steps(depth - 1)
        return
    model, optimizer = trained()
    while count[0] < enough:
        optimizer.zero_grad()
        loss = model(torch.zeros(2, 8, 32, device="cuda")).sum()
        yield loss
        loss.backward()
        optimizer.step()
        yield torch.zeros_like(loss)


def generated():
    for _ in steps(5):
        sorted([2, 1], key=lambda n: torch.full((n,), n, device="cuda").shape[0])
        count[0] = torch.cuda.memory_stats()["allocation.all.allocated"]


def on_the_cpu():
    """Every step of the backward pass allocates on the GPU; the tensors that it is about do not lie there."""
    layer = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    while count[0] < enough:
        x = torch.zeros(8, 16, requires_grad=True)
        hidden = layer[1](layer[0](x))
        for tensor in (x, hidden):
            tensor.register_hook(lambda gradient: (gradient.cuda(), None)[1])
        layer[2](hidden).sum().backward()


def greened():
    here = greenlet.getcurrent()

    def work(depth):
        if depth:
            return work(depth - 1)
        model, optimizer = trained()
        # In the middle of the model another goes on, on the same part of the stack.
        model.layers[0].linear1.register_forward_hook(lambda *_: (here.switch(), None)[1])
        while count[0] < enough or turns[0] < 30:
            optimizer.zero_grad()
            model(torch.zeros(2, 8, 32, device="cuda")).sum().backward()
            here.switch()
            optimizer.step()

    greens = [greenlet.greenlet(work) for _ in range(3)]
    while count[0] < enough or turns[0] < 30:
        for depth, green in enumerate(greens):
            # The first switch brings the argument, later ones only the turn.
            green.switch(*([] if green else [7 * depth]))
        turns[0] += 1


turns = [0]
work = [train, train, generated, on_the_cpu]
try:
    import greenlet

    work.append(greened)
except ImportError:
    pass
threads = [threading.Thread(target=each) for each in work]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if count[0] < enough:
    raise SystemExit("a thread gave up")
print(turns[0], "turns of greenlets")
