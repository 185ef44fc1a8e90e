"""Allocates from very many functions, each made at run time:  many_codes.py LIBCUDART COUNT"""

import ctypes
import sys
import types

cudart = ctypes.CDLL(sys.argv[1])
pointer = ctypes.c_void_p()


def allocate(size):
    cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    cudart.cudaFree(pointer)


def template():
    allocate(64)


for number in range(int(sys.argv[2])):
    types.FunctionType(template.__code__.replace(co_firstlineno=number + 1), globals())()
cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1001))
print("done")
