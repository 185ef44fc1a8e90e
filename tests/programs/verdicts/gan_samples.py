"""A GAN with two optimizers that keeps a sample of every fifth step to look at later."""
import torch
from torch import nn

make = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 256)).cuda()
tell = nn.Sequential(nn.Linear(256, 64), nn.LeakyReLU(), nn.Linear(64, 1)).cuda()
of_make, of_tell = torch.optim.Adam(make.parameters()), torch.optim.Adam(tell.parameters())
loss_of = nn.BCEWithLogitsLoss()
samples = []
fixed = torch.randn(64, 16).cuda()
ones, zeros = torch.ones(64, 1).cuda(), torch.zeros(64, 1).cuda()


def sample():
    with torch.no_grad():
        return make(fixed)  # sample


for step in range(1, 121):
    real, noise = torch.randn(64, 256).cuda(), torch.randn(64, 16).cuda()
    fake = make(noise)
    of_tell.zero_grad()
    (loss_of(tell(real), ones) + loss_of(tell(fake.detach()), zeros)).backward()
    of_tell.step()
    of_make.zero_grad()
    loss_of(tell(fake), ones).backward()
    of_make.step()
    if step % 5 == 0:
        samples.append(sample())
    print(f"step {step}", flush=True)
