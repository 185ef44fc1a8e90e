"""Says what a search for holders must not change: references, the collector's counts, and that things die at once."""

import ctypes
import gc
import sys
import weakref

import torch

library = ctypes.PyDLL(None)
dump = getattr(library, "leaktrace_dump", None) or library.getpid


class Unfriendly:
    """Whatever is asked of it, it says so."""

    def __init__(self, held):
        object.__setattr__(self, "held", held)

    def __getattribute__(self, name):
        print("asked for", name)
        return object.__getattribute__(self, name)

    def __eq__(self, other):
        print("compared")
        return self is other

    def __hash__(self):
        return 7

    def __repr__(self):
        print("shown")
        return "?"


class Watched(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        print("called", getattr(function, "__name__", function))
        return super().__torch_function__(function, types, args, kwargs or {})


def unpack(packed):
    print("unpacked")
    return packed


losses, keyed, odd, graphs = [], {}, [], []


def train(steps):
    weight = torch.nn.Parameter(torch.ones(64, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        loss = (weight * 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        odd.append(Unfriendly(torch.empty(64, device="cuda")))
        keyed[Unfriendly(torch.empty(64, device="cuda"))] = None
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            graphs.append((weight * torch.empty(64, device="cuda")).sum())


train(40)
gc.collect()
gc.disable()
dump()
counts = gc.get_count()
references = [sys.getrefcount(t) for t in losses]
objects = len(gc.get_objects())
dump()
print("counts", [a - b for a, b in zip(gc.get_count(), counts)])
print("references", [sys.getrefcount(t) for t in losses] == references, "objects", len(gc.get_objects()) - objects)
died = []
watched = [weakref.ref(t, died.append) for t in losses]
dump()
print("before", len(died))
losses.clear()
print("after", len(died), "of", len(watched), torch.cuda.memory_allocated() > 0)
