"""An average of the weights, made after a while and changed in place from then on."""
import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
average = None
for step in range(1, 121):
    optimizer.zero_grad()
    model(torch.randn(32, 64).cuda()).square().mean().backward()
    optimizer.step()
    if step == 40:
        average = copy.deepcopy(model)
    elif average is not None:
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.99).add_(p, alpha=0.01)
    print(f"step {step}", flush=True)
