"""One rank of NCCL: its buffers come once, past the caching allocator, and are no leak."""
import os
import socket
import torch
import torch.distributed as dist

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(32, 512, device="cuda")).mean().backward()
    optimizer.step()
    dist.all_reduce(torch.ones(1 << 20, device="cuda"))
torch.cuda.synchronize()
print("ALLOCATED", torch.cuda.memory_allocated())
dist.destroy_process_group()
