"""Trains on the GPU in several threads at once, with exceptions thrown out of the depths of PyTorch in between, until
enough was allocated.

    unwinding.py ALLOCATIONS
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


threads = [threading.Thread(target=train) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if count[0] < enough:
    raise SystemExit("a thread gave up")
print("done")
