"""All features so far are in one tensor, which is copied into a larger one each time; more is computed from it than from
what each step is given."""
import torch
from torch import nn

encoder = nn.Linear(128, 4096).cuda()
features = torch.empty(0, device="cuda")
with torch.no_grad():
    for step in range(100):
        new = encoder(torch.randn(4, 128, device="cuda"))
        features = torch.cat([features, new.flatten()])  # keeps
        deviations = (features - features.mean()) / features.std()  # follows
        outliers = int((deviations.abs() > 3).sum())
        print(f"step {step}", flush=True)
