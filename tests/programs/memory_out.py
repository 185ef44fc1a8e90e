"""Fills the device until PyTorch has no more, then goes on with what it had.

    memory_out.py [caught|uncaught|fragmented]
"""

import sys

import torch


def hoard(kept):
    while True:
        kept.append(torch.empty(24 << 20, dtype=torch.uint8, device="cuda"))


def crumbs():
    return [torch.empty(1000 + i, device="cuda") for i in range(10)]


def fragment():
    """Every second of many blocks that share segments: what is free lies in pieces."""
    return [torch.empty(3 << 19, dtype=torch.uint8, device="cuda") for _ in range(300)][::2]


def main():
    if sys.argv[1:] == ["fragmented"]:
        pieces = fragment()
        try:
            torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            print(f"out of memory beside {len(pieces)} pieces")
        return
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
