"""Keeps gradients: a hook on an activation appends what arrives there in every step.

    backward.py WHICH [STEPS]    WHICH: plain (an operation of PyTorch) | custom (an autograd.Function) | copied (a parameter's own
                                 gradient, which autograd has to copy)
"""
import sys

import torch


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient  # custom: the kept block is made here


def loss_of(which, weight, data, kept):
    activation = weight * data
    activation.register_hook(kept.append)
    if which == "custom":
        return Squared.apply(activation).sum()  # custom: and belongs to this line
    return torch.sigmoid(activation).sum()  # plain: the kept block belongs to the backward pass of this line


def main(which, steps):
    weight = torch.ones(3000, device="cuda", requires_grad=True)
    data = torch.ones(3000, device="cuda")
    optimizer = torch.optim.SGD([weight], lr=0.1)
    kept = []
    for _ in range(steps):
        if which == "copied":
            weight.sum().backward()  # copied: no operation of the forward pass made the node that copies
            kept.append(weight.grad)
        else:
            loss_of(which, weight, data, kept).backward()
        optimizer.step()
        optimizer.zero_grad()
    print(len(kept), "kept")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40)
