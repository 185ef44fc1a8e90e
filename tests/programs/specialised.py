"""Loses memory at one place that calls otherwise once it is specialised: `specialised.py LIBCUDART`. For CPython 3.8 and later."""
import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])


class Data:
    def __getitem__(self, n):
        runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(4096))
        return n


data = Data()
for n in range(60):
    data[n]
