"""A queue whose consumer takes an output in two steps of three: all of them are freed, but later and later."""
import collections

import torch
from torch import nn

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
waiting = collections.deque()
for step in range(1, 121):
    out = net(torch.randn(128, 64).cuda())  # out
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    waiting.append(out.detach())
    del out
    if step % 3:
        waiting.popleft().sum().item()
    print(f"step {step}", flush=True)
