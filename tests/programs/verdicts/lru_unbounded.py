"""An unbounded lru_cache whose key is never the same twice."""
import functools

import torch
from torch import nn

model = nn.Linear(100, 100).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)


@functools.lru_cache(maxsize=None)
def mask(temperature):
    return torch.full((100, 100), temperature, device="cuda")  # mask


for step in range(1, 101):
    temperature = 1.0 / step
    out = model(torch.randn(100, 100).cuda()) * mask(temperature)
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
