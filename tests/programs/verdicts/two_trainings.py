"""One list that two loops of training fill, one after the other, by one function."""
import torch
from torch import nn

kept = []


def train_step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(16, 64).cuda()).square().mean().backward()
    kept.append(torch.ones(65536, device="cuda"))  # kept
    optimizer.step()


model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(39):
    train_step(model, optimizer)
    print(f"step {step + 1}", flush=True)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
for step in range(39, 74):
    train_step(model, optimizer)
    print(f"step {step + 1}", flush=True)
