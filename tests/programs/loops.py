"""Training loops of many styles. Prints how many iterations each made.

    loops.py STYLE [ITERATIONS]
"""

import sys
import threading

import torch
from torch import nn

DEVICE = "cuda"


def network():
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).to(DEVICE)


def batch():
    return torch.ones(8, 16, device=DEVICE)


def plain(n):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(n):
        optimizer.zero_grad()
        net(batch()).sum().backward()
        optimizer.step()


def evaluating(n):
    """Passes without gradients between the steps end no step."""
    net = network()
    optimizer = torch.optim.AdamW(net.parameters())
    for i in range(n):
        optimizer.zero_grad()
        net(batch()).sum().backward()
        optimizer.step()
        if i % 5 == 4:
            with torch.no_grad():
                for _ in range(3):
                    net(batch())


def scaler(n):
    """Mixed precision. On a device that computes nothing no gradient is infinite: no step is skipped."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    grad_scaler = torch.amp.GradScaler("cuda")
    for _ in range(n):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = net(batch()).float().sum()
        grad_scaler.scale(loss).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()


def checkpointed(n):
    """Backward passes compute layers anew, each on the stack of a thread that had none."""
    from torch.utils.checkpoint import checkpoint

    blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1)) for _ in range(3)).to(DEVICE)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    for _ in range(n):
        x = batch().requires_grad_()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        optimizer.zero_grad()
        x.sum().backward()
        optimizer.step()


def restarted(n):
    """The loop goes on with another optimizer, while those before are kept."""
    net, optimizers = network(), []
    for i in range(n):
        if i % 9 == 0:
            optimizers.append(torch.optim.SGD(net.parameters(), lr=0.1))
        optimizers[-1].zero_grad()
        net(batch()).sum().backward()
        optimizers[-1].step()


def accumulating(n):
    """Four backward passes per optimizer step."""
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(n):
        for _ in range(4):
            net(batch()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def gan(n):
    """Two optimizers, a backward pass for each."""
    generator, critic = network(), nn.Linear(4, 1).to(DEVICE)
    first = torch.optim.Adam(critic.parameters())
    second = torch.optim.Adam(generator.parameters())
    for _ in range(n):
        first.zero_grad()
        critic(generator(batch()).detach()).mean().backward()
        first.step()
        second.zero_grad()
        critic(generator(batch())).mean().backward()
        second.step()


def pair(n):
    """Two optimizers after one backward pass."""
    net = network()
    optimizers = [torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.Adam(net[2].parameters())]
    for _ in range(n):
        net(batch()).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def closure(n):
    """The backward pass runs inside the optimizer's step."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss():
        optimizer.zero_grad()
        value = net(batch()).sum()
        value.backward()
        return value

    for _ in range(n):
        optimizer.step(loss)


def thread(n):
    """Training in another thread than the main one."""
    worker = threading.Thread(target=plain, args=(n,))
    worker.start()
    worker.join()


class Own(torch.optim.Optimizer):
    """An optimizer that is not PyTorch's."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad)


def own(n):
    net = network()
    optimizer = Own(net.parameters())
    for _ in range(n):
        optimizer.zero_grad()
        net(batch()).sum().backward()
        optimizer.step()


def compiled(n):
    """`step` compiled: PyTorch's profiling range around it is compiled away. The "eager" backend needs no compiler."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile(fullgraph=False, backend="eager")
    def step():
        optimizer.step()

    for _ in range(n):
        optimizer.zero_grad()
        net(batch()).sum().backward()
        step()


if __name__ == "__main__":
    style, iterations = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 23
    globals()[style](iterations)
    print(f"{style}: {iterations} iterations")
