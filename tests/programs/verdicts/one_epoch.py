"""A training of one epoch. What the model said of each batch is joined at its end, and is gone then."""

import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.net = nn.Linear(64, 64).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.outputs = []

    def train(self, batches):
        for step in range(1, batches + 1):
            y = self.net(torch.randn(64, 64).cuda())
            self.optimizer.zero_grad()
            y.square().mean().backward()
            self.optimizer.step()
            self.outputs.append(y.detach())
            print(f"step {step}", flush=True)
        print(float(torch.cat(self.outputs).std()))
        self.outputs.clear()


Trainer().train(100)
