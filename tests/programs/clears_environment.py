"""Clears its environment, and allocates through the runtime that it is given."""
import ctypes
import os
import sys

os.environ.clear()
runtime = ctypes.CDLL(sys.argv[1])
for step in range(20):
    runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1001))
print("cleared", flush=True)
