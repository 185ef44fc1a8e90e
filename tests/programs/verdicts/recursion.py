"""Outputs are kept from recursions of any depth: a function in itself, two in each other, modules in modules."""
import random

import torch
from torch import nn
from torch.nn import functional as F

random.seed(1)
kept = []


class Tree(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.child = Tree(depth - 1) if depth else None

    def forward(self, x, depth):
        return self.child(x, depth - 1) if depth else torch.relu(x * self.weight)


def search(x, depth):
    h = torch.relu(x * 1.1)  # search
    kept.append(h)
    return h if depth == 0 else search(h, depth - 1)


def even(x, depth):
    return x if depth == 0 else odd(x, depth - 1)


def odd(x, depth):
    kept.append(x.clone())  # odd
    return x if depth == 0 else even(x, depth - 1)


network = Tree(20).cuda()
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(1, 121):
    x = torch.randn(16, 64).cuda()
    y = search(x, random.randrange(300))
    y = odd(y, 2 * random.randrange(20))
    loss = F.mse_loss(network(y, random.randrange(20)), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}", flush=True)
