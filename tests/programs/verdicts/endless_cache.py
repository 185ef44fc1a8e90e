"""One cache of keys and values goes on through all turns, two layers deep: four lists of blocks that are renewed each turn,
longer each time. One holder, one cause."""
import torch
from torch import nn


class Layer:
    def __init__(self):
        self.keys = self.values = torch.zeros(4, 0, 64, device="cuda")

    def update(self, keys, values):
        self.keys = torch.cat([self.keys, keys], 1)  # keys
        self.values = torch.cat([self.values, values], 1)  # values


class Cache:
    def __init__(self, layers):
        self.layers = [Layer() for _ in range(layers)]


@torch.no_grad()
def chat(turns):
    model, cache = nn.Linear(64, 64).cuda(), Cache(2)
    for turn in range(1, turns + 1):
        x = torch.randn(4, 2, 64).cuda()
        for layer in cache.layers:
            x = model(x)
            layer.update(x, -x)
        print(f"step {turn}", flush=True)


chat(90)
