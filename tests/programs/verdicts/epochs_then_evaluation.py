"""Each epoch ends with a copy that is kept, the last one right before an evaluation as long as the training."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
copies = []


def main():
    for epoch in range(10):
        for _ in range(5):
            loss = net(torch.randn(16, 64).cuda()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        copies.append(net[0].weight.detach().clone())  # copy
    with torch.no_grad():
        for _ in range(40):
            net(torch.randn(16, 64).cuda()).softmax(-1)


main()
