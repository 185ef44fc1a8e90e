"""A logger keeps what it is given in lists by name, for ever: two lines, one dict, one cause."""
from collections import defaultdict

import torch
from torch import nn


class Logger:
    def __init__(self):
        self.metrics = defaultdict(list)

    def log(self, **values):
        for name, value in values.items():
            self.metrics[name].append(value)


def accuracy(outputs, labels):
    return (outputs.argmax(1) == labels).float().mean()  # accuracy


def main():
    model = nn.Linear(32, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    logger = Logger()
    for step in range(1, 71):
        labels = torch.randint(10, (8,), device="cuda")
        outputs = model(torch.randn(8, 32, device="cuda"))
        loss = nn.functional.cross_entropy(outputs, labels)  # loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        logger.log(loss=loss, accuracy=accuracy(outputs, labels))
        print(f"step {step}", flush=True)


main()
