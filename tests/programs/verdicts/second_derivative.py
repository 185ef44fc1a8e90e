"""A loss of second derivatives is kept with its graph. Most of what that keeps was made by the backward pass of a backward pass, which
has no line of the program."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
at = torch.rand(256, 2, device="cuda", requires_grad=True)
kept = []
for step in range(40):
    u = net(at)
    (first,) = torch.autograd.grad(u.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), at, create_graph=True)
    loss = (first[:, 1] - second[:, 0]).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    kept.append(loss)
    print(f"step {step}", flush=True)
