"""One line that allocates by one operator after another, and keeps what they made. A step is a call of ours.

    columns.py [STEPS]
"""
import ctypes
import sys

import torch


def keep(operator, x, kept):
    kept.append(operator(x, x))  # kept


def main(steps):
    step = ctypes.CDLL(None).leaktrace_step
    x = torch.ones(64, 64, device="cuda")
    kept = []
    for _ in range(steps):
        for operator in (torch.mul, torch.matmul):
            keep(operator, x, kept)
        step(None)
    print(len(kept), "kept")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
