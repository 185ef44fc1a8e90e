"""Gradients of 16 batches for each of 10 optimizer steps: too few for a verdict. The loss of every batch is kept."""
import torch
from torch import nn

model = nn.Linear(64, 32).cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for batch in range(160):
    loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    (loss / 16).backward()
    losses.append(loss)
    if batch % 16 == 15:
        optimizer.step()
        optimizer.zero_grad()
