"""A ring of sixteen that every fifth step writes to, at places five apart: it is full only when the program ends, and only
three places are empty when its owner is last looked for."""
import torch
from torch import nn

records = [None] * 16


def main():
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(80):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            records[step % 16] = loss.detach().expand(16, 64).contiguous()
        print(f"step {step + 1}", flush=True)


main()
