"""Failures are gathered to be reported at the end; each traceback holds the frames, and those the tensors in them."""
import torch
from torch import nn

model = nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
failures = []


def attempt(step):
    batch = torch.randn(128, 32).cuda()  # batch
    scores = model(batch)  # scores
    if step % 7 in (0, 3):
        raise ValueError(f"no target in step {step}")
    optimizer.zero_grad()
    scores.square().mean().backward()
    optimizer.step()


for step in range(1, 141):
    try:
        attempt(step)
    except ValueError as error:
        failures.append(error)
    print(f"step {step}", flush=True)
print(len(failures), "failed")
