"""Tensors that are replaced by larger ones, and have a bound: a buffer that doubles while it is too small, padding to the
longest batch so far, and a replay memory that is joined at intervals until it has its size, by the middle of the run."""
import random
import torch

random.seed(1)
buffer, used = torch.zeros(16, 32, device="cuda"), 0
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
padded = torch.zeros(8, 64, device="cuda")
memory = torch.zeros(0, 64, device="cuda")
for step in range(1, 241):
    optimizer.zero_grad()
    net(padded[:, :64]).pow(2).mean().backward()
    optimizer.step()
    used = min(used + 4, 600)
    while len(buffer) < used:
        buffer = torch.cat([buffer, torch.zeros_like(buffer)])
    length = random.randint(64, 512)
    if length > padded.shape[1]:
        padded = torch.nn.functional.pad(padded, (0, length - padded.shape[1]))
    if step % 12 == 0 and len(memory) < 320:
        memory = torch.cat([memory, torch.ones(32, 64, device="cuda")])
    print(f"step {step}", flush=True)
