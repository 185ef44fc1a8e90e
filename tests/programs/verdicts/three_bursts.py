"""Fifty steps keep their outputs and fifty do not, three times."""

import torch
from torch import nn
from torch.nn import functional as F

net = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept = []
for step in range(300):
    outputs = net(torch.randn(128, 64).cuda())  # kept
    loss = F.cross_entropy(outputs, torch.randint(0, 10, (128,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 < 50:
        kept.append(outputs.detach())
    print(f"step {step + 1}", flush=True)
