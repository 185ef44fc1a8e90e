"""Every step compiles its function anew, under a file name with a number of its own."""
import torch
from torch import fx, nn

network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
optimizer = torch.optim.SGD(network.parameters(), 0.1)
kept = []
for step in range(1, 121):
    names = {"graph": fx.symbolic_trace(network)}
    exec(compile("def apply(x):\n    return graph(x)\n", f"<generated_{step}>", "exec"), names)
    x = torch.randn(16, 64).cuda()
    y = names["apply"](x)  # apply
    loss = (y - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(y.detach())
    print(f"step {step}", flush=True)
