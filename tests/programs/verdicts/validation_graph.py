"""A validation that adds up its loss with the graph of each batch, between epochs of training."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)).cuda()
optimizer = torch.optim.AdamW(net.parameters())


def validate():
    total = 0
    for _ in range(20):
        total += net(torch.randn(256, 64).cuda()).square().mean()
    return total.item()


for epoch in range(5):
    for _ in range(30):
        loss = net(torch.randn(16, 64).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    validate()
