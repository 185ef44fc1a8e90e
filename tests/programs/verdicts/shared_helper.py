"""What one function makes goes to a deque that drops it after sixteen steps, or to a list that keeps it."""
import collections

import torch
from torch import nn

recent, kept = collections.deque(maxlen=16), []


def make():
    return torch.zeros(16384, device="cuda")  # made


model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(40):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 64).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    recent.append(make())
    kept.append(make())
    print(f"step {step + 1}", flush=True)
