"""A bounded deque that is not full yet when memory runs out. The line that fills it also made cuBLAS set up its
workspace, which is larger than all that the deque holds."""
import collections

import torch
from torch import nn

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
samples = collections.deque(maxlen=16)
for step in range(1, 61):
    out = net(torch.randn(8 * (1 + step % 3), 64).cuda())
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    if step % 10 == 0:
        samples.append(out)
    print(f"step {step}", flush=True)
try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
