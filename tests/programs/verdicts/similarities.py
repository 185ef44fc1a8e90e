"""A bank of features that every step joins to a larger one; what is computed from it is larger each time, and is gone in the
next step."""
import torch
from torch import nn

encoder = nn.Linear(64, 32).cuda()
optimizer = torch.optim.SGD(encoder.parameters(), 0.1)
bank = torch.zeros(0, 32).cuda()
for step in range(1, 151):
    features = encoder(torch.randn(16, 64).cuda())
    similarities = features @ bank.T
    weights = similarities.softmax(-1)
    loss = features.square().mean() + (weights @ bank).mean() if step > 1 else features.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank = torch.cat([bank, features.detach()])  # joined
    print(f"step {step}", flush=True)
