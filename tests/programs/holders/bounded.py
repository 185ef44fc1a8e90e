"""What is bounded and has not reached its bound in this run, and what has none: told apart by who holds it."""
import collections
import functools

import torch
from torch import nn

recent = collections.deque(maxlen=1000)
everything = collections.deque()
beyond = collections.deque(maxlen=1 << 40)


@functools.lru_cache(maxsize=500)
def table(step):
    return torch.full((64, 64), float(step), device="cuda")  # table


network = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(1, 121):
    out = network(table(step))
    recent.append(torch.empty(1000, device="cuda"))  # recent
    everything.append(torch.empty(2000, device="cuda"))  # everything
    beyond.append(torch.empty(3000, device="cuda"))  # beyond
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
