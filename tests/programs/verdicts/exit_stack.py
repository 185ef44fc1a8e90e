"""Work spaces are handed to a stack of contexts that is to clean up, and is never closed."""
import contextlib

import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
clean_up = contextlib.ExitStack()


@contextlib.contextmanager
def workspace():
    space = torch.empty(256, 256, device="cuda")  # workspace
    yield space
    del space


for step in range(1, 101):
    space = clean_up.enter_context(workspace())
    out = model(torch.randn(16, 64).cuda()) + space[:16, :64]
    optimizer.zero_grad()
    out.mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
