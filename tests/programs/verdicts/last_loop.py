"""Training, then a loop without an optimizer that gathers what the model says, and is over with the program:
`last_loop.py keeps` or `last_loop.py releases`, in so many steps; `last_loop.py goes-on`: in what the training has begun."""
import sys

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.AdamW(net.parameters())


def gather(steps, features):
    with torch.no_grad():
        for _ in range(steps):
            features.append(net(torch.randn(16, 64).cuda()))  # features
    return len(features) if sys.argv[1] == "releases" else features


losses = []
for step in range(90):
    loss = net(torch.randn(16, 64).cuda()).square().mean()
    if sys.argv[1] == "goes-on":
        losses.append(loss.detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
found = gather(int(sys.argv[2]), losses if sys.argv[1] == "goes-on" else [])
