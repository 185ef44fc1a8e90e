"""Each evaluation adds to one list and joins all that it has by then: the list is never reset."""

import torch
from torch import nn

torch.set_grad_enabled(False)
net = nn.Linear(64, 10).cuda()
outputs = []
step = 0


def evaluate(batches):
    global step
    for _ in range(batches):
        outputs.append(net(torch.randn(128, 64).cuda()))  # gathered
        step += 1
        print(f"step {step}", flush=True)
    return torch.cat(outputs).mean().item()


for _ in range(10):
    print(evaluate(30))
