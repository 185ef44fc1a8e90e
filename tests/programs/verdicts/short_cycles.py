"""A short run whose only objects refer to themselves: nobody looks at the heap before the end."""
import torch


class Node:
    pass


for step in range(1, 61):
    node = Node()
    node.me = node
    node.x = torch.ones(16, 200, device="cuda")  # made
    print(f"step {step}", flush=True)
