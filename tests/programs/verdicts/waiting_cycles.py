"""Each step makes an object that refers to itself through a bound method, with a tensor in it."""
import torch
from torch import nn


class State:
    def __init__(self):
        self.tensor = torch.empty(128, 128, device="cuda")  # state
        self.again = self.restart
        self.notes = [[] for _ in range(40)]

    def restart(self):
        return self.tensor


model = nn.Linear(128, 128).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(1, 151):
    state = State()
    optimizer.zero_grad()
    model(state.again()).mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
