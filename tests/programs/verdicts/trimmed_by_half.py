"""A log that drops its oldest 20 entries after every 40 that it has got."""
import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
log = []
for step in range(1, 321):
    out = model(torch.randn(64, 64).cuda())  # an output
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    log.append(out.detach())
    if step % 40 == 0:
        log = log[20:]
    print(f"step {step}", flush=True)
