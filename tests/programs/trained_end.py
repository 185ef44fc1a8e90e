"""Trains a little on the GPU, with daemon threads that allocate beside it, then ends in the way argv[1] names."""

import os
import signal
import sys
import threading

import torch

model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters())
kept = []


def beside(started):
    while True:
        kept.append(torch.empty(256, device="cuda"))
        del kept[:-4]
        started.set()


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 64, device="cuda")).sum().backward()
        optimizer.step()


if sys.argv[1] == "daemons":
    for _ in range(3):
        started = threading.Event()
        threading.Thread(target=beside, args=(started,), daemon=True).start()
        started.wait()
train(12)
print("ending by", sys.argv[1], flush=True)
if sys.argv[1] == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
    train(100_000)
if sys.argv[1] == "exception":
    raise RuntimeError("out of ideas")
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
