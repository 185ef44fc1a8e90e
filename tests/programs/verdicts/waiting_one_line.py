"""Each step, and each evaluation after every fourth one, makes an object that refers to itself, by the same line; now and
then the program collects its garbage by hand."""
import gc

import torch
from torch import nn


class Kept:
    def __init__(self, tensors):
        self.tensors = tensors
        self.again = self.restart

    def restart(self):
        return self.tensors


def made(count):
    return Kept([torch.empty(128, 128, device="cuda") for _ in range(count)])  # made


gc.disable()
model = nn.Linear(128, 128).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(1, 121):
    state = made(1)
    optimizer.zero_grad()
    model(state.again()[0]).mean().backward()
    optimizer.step()
    if step % 4 == 0:
        scores = made(2)
    if step % 12 == 0:
        gc.collect()
    print(f"step {step}", flush=True)
