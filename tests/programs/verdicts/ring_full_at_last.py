"""A ring of 38 places in a run of 40 steps: it is full two steps before the end."""
import torch
from torch import nn

ring = {}


def main():
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(40):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        ring[step % 38] = torch.zeros(16384, device="cuda")
        print(f"step {step + 1}", flush=True)


main()
