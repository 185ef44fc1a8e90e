"""Sixty rounds of a loop outside of functions. What it calls assigns to a name of the module, and works on then."""

import torch

N = 60
step = 0
last = None
kept = []


def forward():
    global last
    last = torch.randn(8, 64, device="cuda")
    return last @ last.T


while step < N:
    y = forward()
    kept.append(torch.zeros(1000, device="cuda"))
    step += 1
print(N)
