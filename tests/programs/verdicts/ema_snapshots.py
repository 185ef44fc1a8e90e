"""A copy of the averaged weights is kept at the end of each epoch of ten steps."""
import copy

import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
snapshots = []
for step in range(1, 151):
    optimizer.zero_grad()
    model(torch.randn(32, 64).cuda()).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.01)
    if step % 10 == 0:
        snapshots.append({name: value.clone() for name, value in average.state_dict().items()})  # snapshot
    print(f"step {step}", flush=True)
