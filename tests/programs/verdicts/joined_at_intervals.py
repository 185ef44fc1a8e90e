"""Predictions of every evaluation are joined to those of all before, in one tensor: it is made anew every twentieth step."""
import torch
from torch import nn


class Monitor:
    def __init__(self):
        self.all = None

    def add(self, new):
        self.all = new if self.all is None else torch.cat((self.all, new))  # keeps


net = nn.Linear(30, 10).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
monitor = Monitor()
for step in range(1, 221):
    optimizer.zero_grad()
    net(torch.randn(32, 30, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    if step % 20 == 0:
        with torch.no_grad():
            for _ in range(4):
                monitor.add(net(torch.randn(64, 30, device="cuda")))
    print(f"step {step}", flush=True)
