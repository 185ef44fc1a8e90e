"""Trains a little on the GPU, then ends in the way argv[1] names: `interrupt` (in the middle of it), `kill`, or `late`, when it
takes its last steps while the interpreter ends.
"""

import atexit
import os
import signal
import sys

import torch

model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters())


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 64, device="cuda")).sum().backward()
        optimizer.step()


if sys.argv[1] == "late":
    atexit.register(train, 3)
train(12)
print("ending by", sys.argv[1], flush=True)
if sys.argv[1] == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
    train(100_000)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
