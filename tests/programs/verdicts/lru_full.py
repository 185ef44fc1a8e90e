"""An lru_cache of sixteen that every fifth step looks a new key up in: it is full when memory runs out, and its
newest entry is in a local variable too."""
import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=16)
def table(key):
    return torch.full((16, 64), float(key), device="cuda")


def main():
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(80):
        optimizer.zero_grad()
        model(torch.randn(16, 64).cuda()).square().mean().backward()
        optimizer.step()
        if step % 5 == 0:
            newest = table(step)
        print(f"step {step + 1}", flush=True)
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        print("out of memory")
    return newest


main()
