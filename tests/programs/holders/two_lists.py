"""Two lists that grow in every step are two causes; one list is one cause, whoever fills it and when."""
import torch
from torch import nn

losses, outputs = [], []
network = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(1, 121):
    out = network(torch.randn(8, 64, device="cuda"))
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    losses.append(torch.empty(100, device="cuda"))  # each
    if step % 4 == 0:
        losses.append(torch.empty(1000, device="cuda"))  # fourth
    outputs.append(torch.empty(10000, device="cuda"))  # output
    print(f"step {step}", flush=True)
