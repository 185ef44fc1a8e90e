"""timm: a forward hook keeps the activations of a block; mended: only those of the last batch."""
import timm
import torch
from counted import arguments, step

TRUTH = {"kind": "leak", "at": ["# forward"], "steps": 60, "bytes_per_step": 17408, "holder": ["activations"]}


def train(fixed):
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=2,
                              num_classes=10).cuda()
    activations = []

    def keep(module, inputs, output):
        if fixed:
            activations.clear()
        activations.append(output.detach())

    model.blocks[1].register_forward_hook(keep)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(60):
        step()
        images, labels = torch.randn(8, 3, 32, 32, device="cuda"), torch.randint(10, (8,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(images), labels)  # forward
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(arguments().fixed)
