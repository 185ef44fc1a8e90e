"""Keeps one more allocation in each of its last 10 of 29 steps: too few for a finding before the end.

    late_leak.py LIBCUDART [exit]

With `exit` it ends in C's `exit`, called without the GIL.
"""

import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])
leaktrace = ctypes.CDLL(None)
kept = []


class Memory(ctypes.c_uint64):
    def __init__(self):
        assert runtime.cudaMalloc(ctypes.byref(self), ctypes.c_size_t(4096)) == 0


for step in range(29):
    memory = Memory()
    if step > 18:
        kept.append(memory)
    else:
        assert runtime.cudaFree(memory) == 0
    leaktrace.leaktrace_step(None)
if len(sys.argv) > 2:
    leaktrace.exit(0)
