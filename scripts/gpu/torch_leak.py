"""A training loop whose list keeps one tensor of every step."""
import sys
import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
if "compile" in sys.argv:
    model = torch.compile(model)
data, history = torch.randn(64, 256, device="cuda"), []
for step in range(60):
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    history.append(torch.zeros(512, 512, device="cuda"))  # leaks 1048576
torch.cuda.synchronize()
print("ALLOCATED", torch.cuda.memory_allocated())
