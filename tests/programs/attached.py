"""Trains on the processor and on the GPU until the file `stop` is there, and keeps each loss of the GPU. Says `ready` after 20
steps; at the end, what the first 200 losses of the processor were, and what runs beside.

    attached.py [--join]      --join: trains in a thread that the main one waits for
"""

import hashlib
import os
import sys
import threading

import torch
from torch import nn
from torch.nn import functional

STEPS = 200
torch.manual_seed(7)
models = [nn.Linear(64, 64), nn.Linear(256, 256).to("cuda")]
optimizer = torch.optim.Adam([p for model in models for p in model.parameters()])
history = []


def step(losses):
    optimizer.zero_grad()
    for model in models:
        weight = model.weight
        inputs = torch.randn(32, weight.shape[0]).to(weight.device)
        loss = functional.mse_loss(model(inputs), inputs)  # the line that leaks
        loss.backward()
        (history if weight.is_cuda else losses).append(loss if weight.is_cuda else loss.item())
    optimizer.step()


def train():
    losses = []
    while not os.path.exists("stop") or len(losses) < STEPS:
        step(losses)
        if len(losses) == 20:
            print("ready", flush=True)
    print(hashlib.sha256(repr(losses[:STEPS]).encode()).hexdigest(), flush=True)


if "--join" in sys.argv:
    thread = threading.Thread(target=train)
    thread.start()
    # Without a limit, the main thread runs no instruction meanwhile.
    thread.join()
else:
    train()
names = sorted(vars(sys.modules["__main__"]))
print([name for name in names if "leaktrace" in name or name in ("folder", "library", "reply", "outcome")])
