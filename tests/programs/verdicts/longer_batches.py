"""Each batch is longer than the one before, and the newest output is kept until the next one is there."""
import torch
from torch import nn

model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    inputs = torch.randn(4, 16 + 2 * step, 64, device="cuda")
    outputs = model(inputs)
    optimizer.zero_grad()
    outputs.square().mean().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
