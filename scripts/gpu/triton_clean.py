"""A Triton kernel on PyTorch's memory: modules are loaded, nothing leaks."""
import torch
import triton
import triton.language as tl


@triton.jit
def double(source, target, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(target + at, 2 * tl.load(source + at, mask=at < n), mask=at < n)


weights = torch.nn.Parameter(torch.randn(1 << 16, device="cuda"))
optimizer = torch.optim.SGD([weights], lr=1e-3)
for step in range(60):
    source = torch.randn(1 << 16, device="cuda")
    target = torch.empty_like(source)
    double[(64,)](source, target, source.numel(), SIZE=1024)
    optimizer.zero_grad()
    (weights * target).mean().backward()
    optimizer.step()
torch.cuda.synchronize()
print("ALLOCATED", torch.cuda.memory_allocated())
