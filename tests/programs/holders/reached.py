"""What is reached by several ways, and kept by one: `reached.py state`: the state of a recurrent network, not detached, whose
graph each output and loss reaches too; `reached.py hook`: hooks of a parameter, which is a key of the optimizer's state;
`reached.py gradient`: a gradient with a graph of its own, which leads back to the parameter; `reached.py copied`: outputs with
their graphs, behind copies into other tensors; `reached.py default`: outputs in a function's default argument, which its caller
gets as a result."""
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


def penalized(steps):
    for _ in range(steps):
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
        inputs = torch.randn(32, 64).cuda().requires_grad_()
        model(inputs).sum().backward(create_graph=True)
        inputs.grad.norm().item()


def copied(steps):
    model, losses = nn.Linear(64, 64).cuda(), []
    for _ in range(steps):
        outputs = torch.empty(32, 64).cuda()
        outputs.copy_(model(torch.randn(32, 64).cuda()).tanh())
        losses.append(outputs)


def output(model, outputs=[]):
    outputs.append(model(torch.randn(16, 64).cuda()).detach())
    return outputs


def defaulted(steps):
    model = nn.Linear(64, 64).cuda()
    for _ in range(steps):
        outputs = output(model)
    return outputs


ways = {"state": recurrent, "hook": hooked, "gradient": penalized, "copied": copied, "default": defaulted}
ways[sys.argv[1]](60)
