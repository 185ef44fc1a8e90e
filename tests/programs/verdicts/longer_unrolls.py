"""The states of the latest unroll are kept until the next one has been made, or is begun, and every epoch unrolls for one step
more: as much as one unroll needs, however many there were."""
import torch
from torch import nn

cell, head = nn.Linear(32, 32).cuda(), nn.Linear(32, 8).cuda()
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)


def unrolled(state, times, states):
    for _ in range(times):
        state = torch.tanh(cell(state))
        states.append(state.detach().clone())
    return state


latest, cleared = [], []
for step in range(1, 321):
    times = 4 + step // 8
    fresh = []
    state = unrolled(torch.randn(32, 32).cuda(), times, fresh)
    latest = fresh
    cleared.clear()
    state = unrolled(state, times, cleared)
    optimizer.zero_grad()
    head(state).square().mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
