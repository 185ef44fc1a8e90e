"""A training that has gathered much and gathers no more: `kept_and_known.py stops`, a list that is filled in the first steps;
`slots`, a list of fixed length, far from full; `renews`, the latest 40 outputs; `draws`, 30 outputs of which one at
random makes room for the next; `waits`, a queue that was empty three times and is longer than before when the run ends."""
import random
import sys
from collections import OrderedDict, deque

import torch
from torch import nn

net = nn.Linear(16, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
slots, bank, latest, drawn, waiting = [None] * 20000, [], OrderedDict(), [], deque()
random.seed(5)


def served(step):
    if step < 120:
        return 2 * (step // 20 % 2)
    return int(step >= 145 and step % 5 > 0)


for step in range(160):
    out = net(torch.randn(32, 16).cuda())  # out
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    if sys.argv[1] == "stops" and step < 60:
        bank.append(out.detach())
    elif sys.argv[1] == "slots":
        slots[step] = out.detach()
    elif sys.argv[1] == "renews":
        latest[step] = out.detach()
        if len(latest) > 40:
            latest.popitem(last=False)
    elif sys.argv[1] == "draws" and len(drawn) < 30:
        drawn.append(out.detach())
    elif sys.argv[1] == "draws":
        drawn[random.randrange(30)] = out.detach()
    elif sys.argv[1] == "waits":
        waiting.append(out.detach())
        for _ in range(served(step)):
            waiting.popleft()
