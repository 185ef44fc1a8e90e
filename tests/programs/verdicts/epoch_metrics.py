"""Metrics gather on the device and are summed up and dropped at the end of each epoch of twenty steps."""
import torch
from torch import nn

model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
metrics = []
for step in range(1, 131):
    out = model(torch.randn(32, 64).cuda())
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    metrics.append(out.detach().abs().mean())  # metric
    if step % 20 == 0:
        float(torch.stack(metrics).mean())
        metrics.clear()
    print(f"step {step}", flush=True)
