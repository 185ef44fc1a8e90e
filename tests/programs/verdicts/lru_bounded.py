"""Positions by length, in an lru_cache of sixteen; lengths come at random."""
import functools
import random

import torch
from torch import nn

random.seed(1)
model = nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)


@functools.lru_cache(maxsize=16)
def positions(length):
    return torch.arange(length, device="cuda").float()[:, None].expand(length, 32).contiguous()


for step in range(1, 151):
    length = random.randint(10, 60)
    out = model(torch.randn(length, 32).cuda() + positions(length))
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
