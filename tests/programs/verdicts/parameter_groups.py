"""An optimizer that is given one more parameter in each step: the settings of its groups are no places to be filled."""
import torch
from torch import nn


def main():
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(80):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        parameter = nn.Parameter(torch.zeros(1024, device="cuda"))  # group
        optimizer.add_param_group({"params": [parameter]})
        del parameter
        print(f"step {step + 1}", flush=True)


main()
