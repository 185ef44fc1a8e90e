"""Every training step leaves its loss in a list; then comes an evaluation that is longer than the training was."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
optimizer = torch.optim.Adam(net.parameters())
losses = []


def main():
    for step in range(1, 91):
        loss = nn.functional.mse_loss(net(torch.randn(16, 64).cuda()), torch.zeros(16, 32).cuda())  # loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
        print(f"step {step}", flush=True)
    net.eval()
    with torch.no_grad():
        for _ in range(120):
            net(torch.randn(16, 64).cuda()).softmax(-1)


main()
