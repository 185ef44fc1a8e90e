"""Two variables grow, each at its own pace, by blocks that are renewed each step: two causes."""
import torch

first = second = torch.zeros(0, 64, device="cuda")
for step in range(1, 91):
    with torch.no_grad():
        first = torch.cat([first, torch.ones(8, 64, device="cuda")])  # first
        second = torch.cat([second, torch.ones(32, 64, device="cuda")])  # second
    print(f"step {step}", flush=True)
