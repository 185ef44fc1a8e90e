"""A new model for every fold; outputs are kept, whose graphs keep the models of all folds, or copies of some outputs
until memory runs out: folds.py WHERE"""
import collections
import sys

import torch
from torch import nn

namespace = {"outputs": collections.deque(), "other": None}
where = sys.argv[1]
for step in range(80):
    if step % 5 == 0:
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = model(torch.randn(16, 64).cuda())
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    if where == "graph":
        namespace["outputs"].append(out)
    else:
        # One entry beside the list has what is kept too.
        namespace["other"] = out.detach()
        if step % 5 == 4:
            namespace["outputs"].append(out.detach()[:1])
    del out
if where == "list":
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
