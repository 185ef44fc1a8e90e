"""An encoder is unloaded, but a dict has half of its layers; beside that a list grows. Their function returns before the
program ends."""
import torch
from torch import nn


def main():
    model = nn.Linear(64, 64).cuda()
    encoder = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()  # encoder
    kept = {"first": encoder[0], "third": encoder[2]}
    masks = []
    for step in range(1, 91):
        with torch.no_grad():
            model(torch.randn(8, 64).cuda())
            if step <= 30:
                encoder(torch.randn(4, 256).cuda())
            else:
                encoder = None
        masks.append(torch.ones(8, 96, device="cuda"))  # mask
        print(f"step {step}", flush=True)
    assert len(kept) == 2


main()
