"""Milliseconds per training step, wall clock: overhead.py host|device off|python|all. Prints one number."""
import statistics
import sys
import time
import torch

size, recorder = sys.argv[1:3]
if recorder != "off":
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks=recorder)
width, depth, batch, length = (64, 4, 4, 16) if size == "host" else (1024, 12, 8, 512)
layer = torch.nn.TransformerEncoderLayer(width, 4 if size == "host" else 16, 4 * width, batch_first=True)
model = torch.nn.TransformerEncoder(layer, depth).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.zeros(batch, length, width, device="cuda")


def step():
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=size != "host"):
        loss = model(data).float().sum()
    loss.backward()
    optimizer.step()


for _ in range(35):
    step()
torch.cuda.synchronize()
times = []
for _ in range(20):
    start = time.perf_counter()
    for _ in range(10 if size == "host" else 2):
        step()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - start) / (10 if size == "host" else 2) * 1e3)
print(statistics.median(times))
