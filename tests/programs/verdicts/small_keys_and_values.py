"""A conversation that is never cut: the keys and values of each layer gain 144 bytes with each token, and are rounded up."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width=72):
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.cache = {}

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)
        for name, new in (("k", k), ("v", v)):
            old = self.cache.get(name)
            self.cache[name] = new.clone() if old is None else torch.cat([old, new], dim=1)  # cache
        scores = (q @ self.cache["k"].transpose(-1, -2)).softmax(-1)
        return x + self.out(scores @ self.cache["v"])


@torch.inference_mode()
def generate(tokens):
    embed = nn.Embedding(100, 72).cuda().half()
    layers = nn.ModuleList([Layer(), Layer()]).cuda().half()
    token = torch.zeros(1, 1, dtype=torch.long).cuda()
    for step in range(tokens):
        x = embed(token)
        for layer in layers:
            x = layer(x)
        token = (x @ embed.weight.t()).argmax(-1).clamp(0, 99)
        print(f"step {step + 1}", flush=True)


generate(300)
