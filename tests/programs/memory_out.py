"""Fills the device until PyTorch has no more, then goes on with what it had.

    memory_out.py [caught|uncaught]
"""

import sys

import torch


def hoard(kept):
    while True:
        kept.append(torch.empty(24 << 20, dtype=torch.uint8, device="cuda"))


def crumbs():
    return [torch.empty(1000 + i, device="cuda") for i in range(10)]


def main():
    small, kept = crumbs(), []
    try:
        hoard(kept)
    except torch.OutOfMemoryError:
        if sys.argv[1:] == ["uncaught"]:
            raise
        print(f"out of memory after {len(kept)}, {torch.cuda.memory_allocated()} bytes held")
    kept.clear()
    print(f"{len(small)} small ones are left")
    torch.empty(24 << 20, dtype=torch.uint8, device="cuda")


if __name__ == "__main__":
    main()
