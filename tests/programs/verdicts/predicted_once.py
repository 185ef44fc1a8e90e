"""Predicts what a data set holds and ends: `predict` gathers a tensor for each batch and joins them to one."""

import torch
from torch import nn

torch.set_grad_enabled(False)
net = nn.Linear(64, 128).cuda()


def predict(batches):
    outputs = []
    for step in range(1, batches + 1):
        outputs.append(net(torch.randn(64, 64).cuda()))
        print(f"step {step}", flush=True)
    return torch.cat(outputs)


print(predict(100).argmax(1).bincount().shape)
