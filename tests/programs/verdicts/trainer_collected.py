"""The same trainers, in a cycle by a method of their own: the program collects them every third fold. What waits comes once in
ten steps, also of the line that makes gradients in each."""
import gc
import itertools
import torch
from torch import nn

steps = itertools.count(1)


class Trainer:
    def __init__(self):
        self.model = nn.Linear(64, 128).cuda()  # weights
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.log = self.fit

    def fit(self, batches):
        for _ in range(batches):
            self.optimizer.zero_grad()
            self.model(torch.randn(16, 64, device="cuda")).pow(2).mean().backward()  # gradients
            self.optimizer.step()  # states
            print(f"step {next(steps)}", flush=True)


for fold in range(16):
    Trainer().fit(10)
    if fold % 3 == 2:
        gc.collect()
