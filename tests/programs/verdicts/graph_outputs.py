"""Scores of an evaluation that nobody backpropagates are kept with their graphs: every layer's activations stay."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        hidden = torch.tanh(self.one(x))  # first
        return torch.tanh(self.two(hidden)).sum()  # second


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scores = []
for step in range(1, 101):
    optimizer.zero_grad()
    model(torch.randn(64, 32).cuda()).backward()
    optimizer.step()
    scores.append(model(torch.randn(64, 32).cuda()))
    print(f"step {step}", flush=True)
