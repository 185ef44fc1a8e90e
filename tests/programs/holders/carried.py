"""The graph of one step lives on into the next one's forward pass: two variables of a function hold its output."""
import torch
from torch import nn


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.extra = x.exp() * x.sin() + x.cos() * x.tanh()
        return x.sum()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.extra * gradient


def fit(model, optimizer, steps):
    for step in range(1, steps + 1):
        outputs = {"loss": Keep.apply(model(torch.randn(4096, 256, device="cuda")))}
        last = outputs["loss"]
        optimizer.zero_grad()
        last.backward()
        optimizer.step()
        print(f"step {step}", flush=True)


network = nn.Linear(256, 256).cuda()
fit(network, torch.optim.SGD(network.parameters(), 0.1), 60)
