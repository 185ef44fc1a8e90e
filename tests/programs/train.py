"""Trains something small on the GPU, leaking or not, and prints PyTorch's own counters after every step.

    train.py [--leak none|losses|outputs] [--steps N] [--devices N] [--workers fork|spawn|forkserver] [--churn]
"""

import argparse
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.full((32,), float(index % 7))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 48)
        self.outer = nn.Linear(48, 8)
        self.outputs = []

    def forward(self, x, keep):
        y = torch.relu(self.inner(x))
        if keep:
            self.outputs.append(y)
        return self.outer(y)


def loss_of(prediction):
    return prediction.square().mean()


def churn(dice, device, held):
    """Blocks of all sizes that live for a while, and memory given back to the driver now and then."""
    for _ in range(dice.randrange(6)):
        held.append(torch.empty(dice.choice((3, 700, 5_000, 300_000, 3_000_000)), device=device))
    while len(held) > dice.randrange(12):
        del held[dice.randrange(len(held))]
    if dice.randrange(7) == 0:
        torch.cuda.empty_cache()


def counters(count):
    words = []
    for device in range(count):
        words.append(f"alloc {torch.cuda.memory_allocated(device)} reserved {torch.cuda.memory_reserved(device)}")
    return " ".join(words)


def batches(workers):
    if not workers:
        while True:
            yield torch.ones(16, 32)
    loader = DataLoader(
        Numbers(), batch_size=16, num_workers=2, multiprocessing_context=workers, pin_memory=True, shuffle=False
    )
    yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leak", default="none", choices=("none", "losses", "outputs"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--workers", choices=("fork", "spawn", "forkserver"))
    parser.add_argument("--churn", action="store_true")
    arguments = parser.parse_args()
    dice = random.Random(5)
    devices = [torch.device("cuda", i) for i in range(arguments.devices)]
    models = [Net().to(device) for device in devices]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    losses, held = [], []
    for step, batch in zip(range(1, arguments.steps + 1), batches(arguments.workers)):
        turn = step % len(devices)
        device, model, optimizer = devices[turn], models[turn], optimizers[turn]
        inputs = batch.to(device, non_blocking=True)
        loss = loss_of(model(inputs, keep=arguments.leak == "outputs"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if arguments.leak == "losses":
            losses.append(loss.detach())
        if arguments.churn:
            churn(dice, device, held)
        print(f"step {step} {counters(len(devices))}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
