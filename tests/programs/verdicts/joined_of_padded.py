"""Two outputs of each batch are gathered, of sizes that the allocator rounds up by much, and joined as their function returns."""

import torch
from torch import nn

torch.set_grad_enabled(False)
net = nn.Linear(64, 10).cuda()


def predict(batches):
    outputs = {"logits": [], "labels": []}
    for step in range(1, batches + 1):
        logits = net(torch.randn(16, 64).cuda())
        outputs["logits"].append(logits)
        outputs["labels"].append(logits.argmax(-1))
        print(f"step {step}", flush=True)
    return {name: torch.cat(parts).cpu() for name, parts in outputs.items()}


print({name: whole.shape for name, whole in predict(150).items()})
