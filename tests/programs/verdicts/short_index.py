"""An index that each of a few steps adds to."""

import torch

index = torch.empty(0, 256, device="cuda")
for step in range(30):
    index = torch.cat([index, torch.randn(64, 256, device="cuda")])  # index
    print(f"step {step + 1}", flush=True)
