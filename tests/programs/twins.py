"""One function keeps two kinds of garbage, a small one in every step and a large one in every 25th.  twins.py [mended]"""
import sys

import torch


class Cycle:
    def __init__(self, x):
        self.me, self.x = self, x


def keep(x):
    return Cycle(x.clone())


network = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(network.parameters(), 1e-3)
small, large = torch.zeros(1024, device="cuda"), torch.zeros(65536, device="cuda")
for step in range(1, 201):
    if "mended" not in sys.argv:
        keep(small)  # every step
    if step % 25 == 0:
        for _ in range(4):
            keep(large)  # every 25th
    network(torch.zeros(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
