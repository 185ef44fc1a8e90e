"""A corpus is embedded, a batch at a time; what the function gathers is gone when it returns, and queries are served then."""

import torch
from torch import nn

torch.set_grad_enabled(False)
DEVICE = "cuda"
net = nn.Linear(64, 128).to(DEVICE)


def embed(batches):
    outputs = []
    for _ in range(batches):
        outputs.append(net(torch.ones(64, 64, device=DEVICE)))
    return torch.cat(outputs).cpu()


def serve(corpus, queries):
    for _ in range(queries):
        print((net(torch.ones(1, 64, device=DEVICE)).cpu() @ corpus.t()).shape[1])


serve(embed(100), 6)
