"""Tensors of other layouts, which have their memory in tensors of their own, and handles of storages: each kept in a list. And
copies that cycles keep, whose storages have handles that nobody has any more."""
import copy

import torch

sparse, compressed, nested, storages = [], [], [], []


class Node:
    def __init__(self, held):
        self.me, self.held = self, held


def main():
    weight = torch.zeros(64, 64).cuda().requires_grad_()
    optimizer = torch.optim.SGD([weight], 0.1)
    indices = torch.arange(64).repeat(2, 1).cuda()
    bounds, columns = torch.arange(65).cuda(), torch.arange(64).cuda()
    for _ in range(60):
        sparse.append(torch.sparse_coo_tensor(indices, torch.rand(64, 512).cuda(), (64, 64, 512)))
        compressed.append(torch.sparse_csr_tensor(bounds, columns, torch.rand(64).cuda(), (64, 64)))
        nested.append(torch.nested.nested_tensor([torch.rand(32, 64).cuda(), torch.rand(48, 64).cuda()]))
        storages.append(torch.rand(4096).cuda().untyped_storage())
        Node(copy.deepcopy(torch.rand(2048).cuda()))
        optimizer.zero_grad()
        weight.square().mean().backward()
        optimizer.step()


main()
