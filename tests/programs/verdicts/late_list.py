"""A list takes in one tensor a step, from shortly before the end on: ten of them, and nothing bounds the list."""
import torch
from torch import nn

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
outputs = []
for step in range(1, 71):
    out = net(torch.randn(8, 64).cuda())  # output
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    if step > 60:
        outputs.append(out.detach())
    print(f"step {step}", flush=True)
