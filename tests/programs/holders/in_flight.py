"""A list keeps a little of every step. Large buffers of the same line are in flight for three steps, known to C++ only."""

import ctypes

python = ctypes.PyDLL(None)
driver = ctypes.CDLL("libcuda.so.1")
library = ctypes.PyDLL(None)
dump = getattr(library, "leaktrace_dump", None)


class Memory(ctypes.c_uint64):
    pass


def take(size):
    memory = Memory()
    assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
    return memory


def main():
    kept, in_flight = [], []
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    for step in range(1, 41):
        for size in (4096, 1 << 20, 1 << 20):
            memory = take(size)
            # An address that no Python object shows: a queue of C++'s has it.
            kept.append(memory) if size == 4096 else in_flight.append(~memory.value)
            del memory
        if dump and step in (20, 40):
            dump()
        while len(in_flight) > 6:
            driver.cuMemFree_v2(ctypes.c_uint64(~in_flight.pop(0)))
        if dump:
            library.leaktrace_step(None)


main()
