"""Layers are unfrozen one after the other: the optimizer gets a state for each, and has no more than it has parameters."""
import torch
from torch import nn

layers = nn.ModuleList(nn.Linear(72, 72) for _ in range(10)).cuda().requires_grad_(False)
optimizer = torch.optim.Adam(layers.parameters())
for step in range(100):
    if step % 10 == 0:
        layers[9 - step // 10].requires_grad_(True)
    x = torch.randn(8, 72).cuda()
    for layer in layers:
        x = layer(x)
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}", flush=True)
