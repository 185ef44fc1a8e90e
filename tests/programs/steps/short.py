"""A loop of few rounds, of which each keeps a block, and another until the next round."""

import torch

kept = []
for _ in range(60):
    batch = torch.empty(4, 50, 64, device="cuda")
    kept.append(torch.empty(100, device="cuda"))
