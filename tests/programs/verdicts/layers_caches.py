"""Each layer caches what it makes of a new key, by the same lines; the keys never come again."""
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.merged = {}

    def scaled(self, key):
        if key not in self.merged:
            self.merged[key] = self.weight.detach() * 2  # merged
        return self.merged[key]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.value = Layer(), Layer()

    def forward(self, x, key):
        return x @ self.query.scaled(key) + x @ self.value.scaled(key) + x @ self.query.weight


model = nn.ModuleList([Block(), Block()]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1, 81):
    x = torch.randn(16, 64).cuda()
    for block in model:
        x = block(x, step)
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
