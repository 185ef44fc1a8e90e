"""Reinforcement learning with a replay buffer on the device that holds the last thirty transitions."""
import collections
import random

import torch
from torch import nn

random.seed(0)
policy = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)).cuda()
optimizer = torch.optim.Adam(policy.parameters())
buffer = collections.deque(maxlen=30)
state = torch.randn(8, 16).cuda()
for step in range(1, 151):
    with torch.no_grad():
        action = policy(state)
    following = torch.randn(8, 16).cuda()
    buffer.append((state, action, following))
    state = following
    old, acted, _ = random.choice(buffer)
    optimizer.zero_grad()
    (policy(old) - acted).square().mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
