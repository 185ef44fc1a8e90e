"""Keeps activations in a local, in steps of many allocations each: python many_events.py LAYERS"""
import sys

import torch


@torch.no_grad()
def main():
    model = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range(int(sys.argv[1]))])
    kept = []
    for _ in range(40):
        kept.append(model(torch.randn(64, 64, device="cuda")) + 1)  # kept


main()
