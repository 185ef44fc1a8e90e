"""Device memory without any framework: objects that have nothing but its address. One more is kept in every step."""

import contextvars
import ctypes
import sys

python = ctypes.PyDLL(None)
driver = ctypes.CDLL("libcuda.so.1")


class Memory(ctypes.c_uint64):
    def __init__(self):
        code = driver.cuMemAlloc_v2(ctypes.byref(self), ctypes.c_size_t(4096))
        assert code == 0, code


class Plain:
    def __init__(self):
        self.name = "plain"
        self.kept = []


class Slotted:
    __slots__ = ("first", "kept")

    def __init__(self):
        self.first, self.kept = None, []


class Derived(dict):
    def __init__(self):
        super().__init__()
        self.kept = []


class Class:
    kept = []


def pusher():
    other, box = 1, []

    def push(m):
        box.append((other, m))

    return push


def remember(m, n=0, seen=[]):
    seen.append(m)


def recall(m, *, past=[]):
    past.append(m)


def fails(m):
    raise ValueError("as it should")


def suspended(m):
    yield
    del m


plain, slotted, derived, push, errors = Plain(), Slotted(), Derived(), pusher(), []
numbered, named, addresses = {}, {"a b": []}, []
deep = {"x": [None, (Plain(),)]}
variable = contextvars.ContextVar("variable", default=[])


def main():
    kept, pending = [], []

    def inner():
        kept.append(Memory())

    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    for _ in range(40):
        inner()
        plain.kept.append(Memory())
        slotted.kept.append(Memory())
        derived.kept.append(Memory())
        Class.kept.append(Memory())
        push(Memory())
        remember(Memory())
        recall(Memory())
        numbered[len(numbered)] = Memory()
        named["a b"].append(Memory())
        addresses.append(Memory().value)
        deep["x"][1][0].kept.append(Memory())
        variable.get().append(Memory())
        try:
            fails(Memory())
        except ValueError as error:
            errors.append(error)
        generator = suspended(Memory())
        next(generator)
        pending.append(generator)
        del generator
        cycle = Plain()
        cycle.me, cycle.memory = cycle, Memory()
        del cycle
        python.leaktrace_step(None)


if len(sys.argv) > 1:
    python = ctypes.CDLL(None)
import gc

gc.disable()
main()
