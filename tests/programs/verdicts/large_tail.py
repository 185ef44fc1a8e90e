"""A history of outputs in one tensor, made anew in each step: 1 MiB longer, where the allocator rounds up to 2 MiB, so that
every second block is larger."""
import torch

net = torch.nn.Linear(256, 256).cuda()
history = torch.zeros(12 << 10, 256, device="cuda")
for step in range(1, 61):
    with torch.no_grad():
        out = net(torch.randn(1024, 256, device="cuda"))
        history = torch.cat([history, out])  # history
    print(f"step {step}", flush=True)
