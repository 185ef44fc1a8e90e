"""Outputs wait in functions that are called every eight steps: a sawtooth, beside what the line set up first. With
`keep` they are never called: a leak."""
import sys

import torch
from torch import nn

waiting = []


def main():
    model = nn.Linear(128, 128).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(1, 65):
        outputs = model(torch.randn(32, 128, device="cuda"))
        outputs.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        waiting.append(lambda outputs=outputs: outputs.mean().item())
        if step % 8 == 0 and "keep" not in sys.argv:
            while waiting:
                waiting.pop()()
        print(f"step {step}", flush=True)


main()
