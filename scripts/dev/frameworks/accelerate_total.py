"""accelerate: a running total of a monitored size keeps every step's graph; mended: detached."""
import torch
from accelerate import Accelerator
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# What the means and absolutes save for their backward passes hangs on the total.
TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 120, "bytes_per_step": 4096, "holder": ["total"]}


def train(fixed):
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
    loader = DataLoader(TensorDataset(torch.randn(640, 32)), batch_size=32, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = 0
    for epoch in range(6):
        for (batch,) in loader:
            step()
            outputs = model(batch)  # outputs
            size = outputs.abs().mean()
            accelerator.backward(nn.functional.mse_loss(outputs, batch))
            optimizer.step()
            optimizer.zero_grad()
            total += size.detach() if fixed else size
        accelerator.print(f"epoch {epoch}: {float(total):.3f}")


train(arguments().fixed)
