"""What is reached by several ways, and kept by one: `reached.py state`: the state of a recurrent network, not detached, whose
graph each output and loss reaches too; `reached.py hook`: hooks of a parameter, which is a key of the optimizer's state."""
import sys

import torch
from torch import nn


def recurrent(steps):
    cell, head = nn.GRUCell(32, 64).cuda(), nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.0)
    state = torch.zeros(16, 64).cuda()
    for _ in range(steps):
        state = cell(torch.randn(16, 32).cuda(), state)
        scores = head(state)
        loss = scores.square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()


def hooked(steps):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def attach(scale):
        model[2].weight.register_hook(lambda grad: grad * scale.mean())

    for _ in range(steps):
        hidden = model[:2](torch.randn(16, 32).cuda())
        attach(hidden.detach())
        optimizer.zero_grad()
        model[2](hidden).square().mean().backward()
        optimizer.step()


{"state": recurrent, "hook": hooked}[sys.argv[1]](60)
