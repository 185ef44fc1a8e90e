"""What hooks and contexts of autograd graphs keep. `graph_hooks.py cycle`: a tensor's hook keeps the tensor; `graph_hooks.py
module`: a module's hook keeps the module's output; `graph_hooks.py store`: what unpacks saved tensors keeps them, and thereby the
graph; `graph_hooks.py packed`: the graphs of kept losses have what the saved tensors were packed to; `graph_hooks.py contexts`:
the contexts of two layers, one behind the other, keep their outputs, which are 32 KiB each."""
import gc
import sys

import torch
from torch import nn


def cycle(model, steps):
    for _ in range(steps):
        features = model[0](torch.randn(16, 64).cuda())
        features.register_hook(lambda grad, kept=features: grad * kept.shape[0])
        model[1:](features).sum().backward()
        model.zero_grad()


class Recorder:
    def __init__(self, layer):
        self.output = None
        self.hooks = [layer.register_forward_hook(self.forward), layer.register_full_backward_hook(self.backward)]

    def forward(self, module, inputs, output):
        self.output = output

    def backward(self, module, inputs, outputs):
        pass


def module(model, steps):
    for _ in range(steps):
        recorder = Recorder(model[1])
        model(torch.randn(16, 64).cuda()).sum().backward()
        for hook in recorder.hooks:
            hook.remove()
        model.zero_grad()


def pass_with_hooks(model, pack, unpack):
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return model(torch.randn(16, 64).cuda()).sum()


def store(model, steps):
    def offload():
        kept = {}
        return lambda tensor: kept.setdefault(len(kept), tensor) is None or len(kept) - 1, lambda key: kept[key]

    for _ in range(steps):
        pass_with_hooks(model, *offload()).backward(retain_graph=True)
        model.zero_grad()


def packed(model, steps):
    losses = []
    for _ in range(steps):
        losses.append(pass_with_hooks(model, lambda tensor: (tensor.half(),), lambda pair: pair[0].float()))


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        ctx.outputs = inputs.tanh()
        return ctx.outputs

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - ctx.outputs**2)


def contexts(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(steps):
        if step == 40:
            gc.collect()
        optimizer.zero_grad()
        hidden = Tanh.apply(model[0](torch.randn(128, 64).cuda()))
        Tanh.apply(model[2](hidden)).sum().backward()
        optimizer.step()


ways = {"cycle": cycle, "module": module, "store": store, "packed": packed, "contexts": contexts}
ways[sys.argv[1]](nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).cuda(), 60)
