"""peft: every request brings an adapter, which is never deleted; mended: deleted after its request."""
import torch
from counted import arguments, step
from peft import LoraConfig, get_peft_model
from torch import nn

TRUTH = {"kind": "leak", "at": ["# adapter"], "steps": 50, "bytes_per_step": 8192, "holder": ["lora_A", "lora_B"]}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.down(self.up(x).relu())


def request(model, number, fixed):
    name = f"customer{number}"
    model.add_adapter(name, LoraConfig(r=8, target_modules=["up", "down"]))  # adapter
    model.set_adapter(name)
    with torch.no_grad():
        model(torch.randn(4, 64, device="cuda")).sum().item()
    if fixed:
        model.set_adapter("default")
        model.delete_adapter(name)


options = arguments()
model = get_peft_model(Block().cuda(), LoraConfig(r=8, target_modules=["up", "down"]))
for number in range(50):
    step()
    request(model, number, options.fixed)
