"""torchmetrics: a curve needs all predictions, and the metric is never reset; mended: after every epoch."""
import torch
import torchmetrics
from counted import arguments, step
from torch import nn

TRUTH = {"kind": "leak", "at": ["# update", "# batch"], "steps": 120, "bytes_per_step": 3072, "holder": ["curve"]}


def train(fixed):
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    curve = torchmetrics.MetricCollection({"curve": torchmetrics.AUROC(task="binary")}).cuda()
    for epoch in range(6):
        for _ in range(20):
            step()
            inputs, labels = torch.randn(256, 16, device="cuda"), torch.randint(2, (256,), device="cuda")  # batch
            scores = model(inputs).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, labels.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.update(scores.sigmoid().detach(), labels)  # update
        if fixed:
            curve.reset()


train(arguments().fixed)
