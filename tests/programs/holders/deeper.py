"""A model that gets a layer every fifteen steps, and an optimizer made anew for all of its layers."""

import torch
from torch import nn

layers = nn.ModuleList()
for step in range(120):
    if step % 15 == 0:
        layers.append(nn.Linear(64, 64).cuda())
        optimizer = torch.optim.Adam(layers.parameters())
    x = torch.randn(16, 64).cuda()
    for layer in layers:
        x = layer(x)
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()
