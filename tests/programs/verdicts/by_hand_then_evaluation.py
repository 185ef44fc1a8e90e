"""A training without an optimizer leaves its loss in a list every step; then comes an evaluation, longer than it.
Loops end all steps."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).cuda()
losses = []


def main():
    for step in range(1, 91):
        loss = nn.functional.mse_loss(net(torch.randn(16, 64).cuda()), torch.zeros(16, 32).cuda())  # loss
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        losses.append(loss)
        print(f"step {step}", flush=True)
    net.eval()
    with torch.no_grad():
        for _ in range(400):
            x = torch.randn(16, 64).cuda()
            net(net(x) @ torch.ones(32, 64, device="cuda")).softmax(-1).log().exp().square().sqrt().neg().abs().mean()
            net(x).softmax(-1).log().exp().square().sqrt().neg().abs().mean()


main()
