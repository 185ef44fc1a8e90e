"""timm: a validation averages losses as tensors, with their graphs; mended: as numbers."""
import timm
import torch
from counted import arguments, step
from timm.models.mlp_mixer import MlpMixer
from timm.utils import AverageMeter

TRUTH = {"kind": "leak", "at": ["# batch", "# outputs", "# loss"], "steps": 80, "bytes_per_step": 116224, "holder": ["meter"]}

options = arguments()
model = MlpMixer(num_classes=10, img_size=16, patch_size=8, num_blocks=1, embed_dim=32).cuda().eval()
meter = AverageMeter()
for _ in range(80):
    step()
    images, labels = torch.randn(8, 3, 16, 16, device="cuda"), torch.randint(10, (8,), device="cuda")  # batch
    outputs = model(images)  # outputs
    loss = torch.nn.functional.cross_entropy(outputs, labels)  # loss
    meter.update(loss.item() if options.fixed else loss, len(images))
