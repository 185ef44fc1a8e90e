"""A package's metric that is never reset: what it gathers in two lists is one mistake."""
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).with_name("site-packages")))
from curves import Curve

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
curve = Curve()
for step in range(1, 81):
    labels = torch.randn(32, 64, device="cuda")  # labels
    scores = net(torch.randn(32, 64).cuda()).detach()  # scores
    optimizer.zero_grad()
    (net(labels) - scores).square().mean().backward()
    optimizer.step()
    curve.update(scores, labels)
    print(f"step {step}", flush=True)
