"""Each epoch calls the next one: the calls that run keep their batch, what came of it and the loss, which is one mistake."""
import itertools
import torch
from torch import nn

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
steps = itertools.count(1)


def train(left):
    for _ in range(3):
        inputs = torch.randn(64, 64, device="cuda")  # inputs
        outputs = net(inputs)  # outputs
        loss = (outputs - inputs).pow(2).mean()  # loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {next(steps)}", flush=True)
    if left:
        train(left - 1)


train(49)
