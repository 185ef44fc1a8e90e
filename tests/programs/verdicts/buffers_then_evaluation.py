"""Two buffers that drop their oldest entries fill up in a loop without an optimizer; then comes another loop, while they
stay as they are."""
import collections

import torch
from torch import nn

net = nn.Linear(64, 64).cuda()
recent = collections.deque(maxlen=16)
samples = []
step = 0


def done():
    global step
    step += 1
    print(f"step {step}", flush=True)


with torch.no_grad():
    for i in range(140):
        x = torch.randn(8 * (1 + i % 3), 64).cuda()
        recent.append([x, net(x)])
        if i % 5 == 0:
            samples.append(x + 1)
        if len(samples) > 4:
            del samples[0]
        done()
    for i in range(40):
        net(torch.randn(32, 64).cuda()).mean().item()
        done()
