"""A curriculum: sequences become longer, and with them the attention maps that the layer keeps of every step."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)
        self.maps = []

    def forward(self, x):
        weights = torch.softmax(self.q(x) @ self.k(x).transpose(0, 1), -1)  # weights
        self.maps.append(weights.detach())
        return weights @ x


net = Attention().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(160):
    length = 32 * (1 + step // 20)
    loss = net(torch.randn(length, 16).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1}", flush=True)
