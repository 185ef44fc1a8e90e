"""Cycles that nobody collects: the collector is off."""
import gc

import torch
from torch import nn


class Node:
    def __init__(self):
        self.tensor = torch.empty(64, 64, device="cuda")  # node
        self.itself = self


gc.disable()
network = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(1, 61):
    node = Node()
    optimizer.zero_grad()
    network(node.tensor).mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
