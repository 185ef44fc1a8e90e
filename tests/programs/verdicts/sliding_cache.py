"""Generation with a key-value cache that slides: the last 24 tokens of one endless conversation. No optimizer."""
import torch
from torch import nn

embed, keys, values, out = (nn.Embedding(100, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 100))
for part in (embed, keys, values, out):
    part.cuda().requires_grad_(False)
with torch.inference_mode():
    cache = [torch.zeros(8, 0, 64).cuda(), torch.zeros(8, 0, 64).cuda()]
    token = torch.zeros(8, 1, dtype=torch.long).cuda()
    for step in range(1, 151):
        x = embed(token)
        cache = [torch.cat(pair, 1)[:, -24:].clone() for pair in zip(cache, (keys(x), values(x)))]
        token = out((x @ cache[0].transpose(1, 2)).softmax(-1) @ cache[1]).argmax(-1)
        print(f"step {step}", flush=True)
