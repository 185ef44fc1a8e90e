"""Sequences that become longer from epoch to epoch: each batch is as large as the one before, or 512 bytes larger."""

import torch
from torch import nn

net = nn.Linear(1, 32).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
step = 0
for epoch in range(30):
    length = 64 + 4 * epoch
    for _ in range(8):
        x = torch.randn(length * 32, 1).cuda()
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(f"step {step}", flush=True)
