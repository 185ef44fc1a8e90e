"""accelerate: an evaluation without no_grad gathers predictions with their graphs; mended: no_grad, cleared after."""
import contextlib

import torch
from accelerate import Accelerator
from counted import arguments, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"kind": "leak", "at": ["# outputs"], "steps": 160, "bytes_per_step": 18432, "holder": ["predictions"],
         "every": 2}


def evaluate(accelerator, model, loader, predictions, fixed):
    model.eval()
    with torch.no_grad() if fixed else contextlib.nullcontext():
        for (batch,) in loader:
            step()
            outputs = model(batch)  # outputs
            predictions.append(accelerator.gather_for_metrics(outputs))
    model.train()


def main(fixed):
    accelerator = Accelerator(mixed_precision="bf16")
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    loader = DataLoader(TensorDataset(torch.randn(320, 32)), batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    predictions = []
    for epoch in range(8):
        for (batch,) in loader:
            step()
            accelerator.backward(nn.functional.mse_loss(model(batch), batch))
            optimizer.step()
            optimizer.zero_grad()
        evaluate(accelerator, model, loader, predictions, fixed)
        if fixed:
            predictions.clear()


main(arguments().fixed)
