"""Allocates by ctypes in each of 60 rounds:  leak.py leaks|keeps-nothing"""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
history = []


class Memory(ctypes.c_uint64):
    def __init__(self, size):
        assert driver.cuMemAlloc_v2(ctypes.byref(self), ctypes.c_size_t(size)) == 0


def work(leaks):
    for size in (4096, 1000):
        memory = Memory(size)
        if leaks and size == 1000:
            history.append(memory)  # kept
        else:
            assert driver.cuMemFree_v2(memory) == 0


for step in range(60):
    work(sys.argv[1] == "leaks")  # the loop
print(len(history))
