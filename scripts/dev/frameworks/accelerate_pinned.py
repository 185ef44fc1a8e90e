"""accelerate: a loader with pinned memory, and the batches that were hard are kept as it gave them; mended: numbers."""
import torch
from accelerate import Accelerator
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# The loader's thread allocates.
TRUTH = {"kind": "leak", "at": ["pin_memory.py", "# loader"], "steps": 100, "bytes_per_step": 4096, "holder": ["hard"]}


def train(fixed):
    accelerator = Accelerator(device_placement=False)
    model = nn.Linear(32, 32).cuda()
    loader = DataLoader(TensorDataset(torch.randn(640, 32)), batch_size=32, pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer, loader = accelerator.prepare(optimizer, loader)
    hard = []
    for _ in range(5):
        for (batch,) in loader:  # loader
            step()
            loss = model(batch.to("cuda", non_blocking=True)).square().mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            hard.append(batch.norm().item() if fixed else batch)


train(arguments().fixed)
