"""One conversation without an end: keys and values of two layers, each made of those before, in blocks that PyTorch's allocator
finds room to spare for once they have 1 MiB."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(256, 768)

    def forward(self, x, past):
        query, key, value = self.project(x).chunk(3, -1)
        if past:
            key = torch.cat([past[0], key])  # keys
            value = torch.cat([past[1], value])  # values
        return (query @ key.T).softmax(-1) @ value, (key, value)


layers = [Attention().cuda() for _ in range(2)]
past = [None, None]
with torch.inference_mode():
    for turn in range(80):
        x = torch.randn(16, 256, device="cuda")
        for i, layer in enumerate(layers):
            x, past[i] = layer(x, past[i])
        print(f"step {turn + 1}", flush=True)
