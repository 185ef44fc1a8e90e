"""A captured training step, replayed: its private pool is taken once and is no leak."""
import ctypes
import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(64, 256, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    model(data).square().mean().backward()
    optimizer.step()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
ended = getattr(ctypes.CDLL(None), "leaktrace_step", lambda label: None)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(60):
    data.copy_(torch.randn(64, 256, device="cuda"))
    graph.replay()
    ended(None)
torch.cuda.synchronize()
print("ALLOCATED", torch.cuda.memory_allocated())
