"""Sixteen epochs of ten batches, without an optimizer; then killed."""
import os
import signal

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64)).cuda()
workspace = torch.empty(4096, 64, device="cuda")
kept = []


def train_epoch(loader):
    for batch in loader:
        x = batch.cuda()
        out = net(x)
        loss = nn.functional.mse_loss(out, torch.zeros_like(out))
        kept.append(loss.detach())
        workspace.zero_()


def fit(loader):
    for _ in range(16):
        train_epoch(loader)
    os.kill(os.getpid(), signal.SIGKILL)


fit(torch.utils.data.DataLoader(torch.randn(10 * 8, 64), batch_size=8, shuffle=True))
