"""Sequences that become longer by four numbers in every second epoch: each batch is as long as the one before, or 512 bytes longer."""

import torch
from torch import nn

net = nn.Linear(1, 32).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
step = 0
for epoch in range(40):
    length = 64 + 4 * (epoch // 2)
    for _ in range(6):
        x = torch.randn(length * 32, 1).cuda()
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(f"step {step}", flush=True)
