"""torchvision: an extractor made by fx, and the features of every batch are kept; mended: on the host."""
import torch
import torchvision
from counted import arguments, step
from torchvision.models.feature_extraction import create_feature_extractor

TRUTH = {"kind": "leak", "at": ["# features"], "steps": 60, "bytes_per_step": 68608, "holder": ["index"]}


@torch.inference_mode()
def build(fixed):
    model = torchvision.models.squeezenet1_1(num_classes=10).eval()
    extractor = create_feature_extractor(model, {"features.6": "middle", "features.3": "early"}).cuda()
    index = {}
    for number in range(60):
        step()
        features = extractor(torch.randn(2, 3, 32, 32, device="cuda"))  # features
        index[number] = {name: each.cpu() if fixed else each for name, each in features.items()}
        del features
    return index


build(arguments().fixed)
