"""A result of each round lives into the next. Prints the bytes that are left when the loop is over."""

import torch

weights = torch.ones(512, 512, device="cuda")
for _ in range(40):
    result = weights @ weights
print(torch.cuda.memory_allocated())
