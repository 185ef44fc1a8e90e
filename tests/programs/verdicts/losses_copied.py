"""The losses of a training are kept with their graphs, and read when it is over."""

import torch
from torch import nn

net = nn.Linear(128, 40).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
losses = []
for step in range(1, 121):
    optimizer.zero_grad()
    loss = net(torch.randn(16, 128).cuda()).pow(2).mean()  # loss
    loss.backward()
    optimizer.step()
    losses.append(loss)
    print(f"step {step}", flush=True)
print(len([loss.item() for loss in losses]))
