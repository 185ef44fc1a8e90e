"""Every step keeps its features, until an augmentation is switched off for the last few: what was kept stays."""
import torch
from torch import nn

model = nn.Linear(64, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
seen = []
for step in range(1, 241):
    x = torch.randn(16, 64).cuda()  # a batch
    if step <= 225:
        seen.append(x)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}", flush=True)
