"""The demo's program: a small classifier whose training history keeps a little of every step on the GPU.

    python scripts/leaky.py [--steps N] [--fixed]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional


class History:
    """The losses of an epoch, to be averaged at its end."""

    def __init__(self, keep_tensors):
        self.keep_tensors = keep_tensors
        self.losses = []

    def add(self, loss):
        self.losses.append(loss.detach() if self.keep_tensors else loss.item())


def squared_error(prediction, target):
    # The result is one number, but its storage is as large as the prediction.
    return functional.mse_loss(prediction, target)


def train(steps, device, fixed):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    history = History(keep_tensors=not fixed)
    for _ in range(steps):
        inputs = torch.randn(96, 64).to(device)
        targets = torch.randn(96, 32).to(device)
        loss = squared_error(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.add(loss)
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--fixed", action="store_true", help="keep numbers instead of tensors")
    arguments = parser.parse_args()
    train(arguments.steps, arguments.device, arguments.fixed)
    print(f"trained for {arguments.steps} steps")
