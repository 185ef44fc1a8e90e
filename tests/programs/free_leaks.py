"""Threads that work at once, each in a loop of its own, of a CPython without a GIL; in each round one block is kept.

    free_leaks.py LIBCUDART
"""

import ctypes
import sys
import threading

assert not sys._is_gil_enabled()
runtime = ctypes.CDLL(sys.argv[1])
kept = []


def allocate(size):
    pointer = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(pointer), size)
    return pointer


def keeps():
    kept.append(allocate(4096))


def work(pointers, n):
    for i in range(3):
        pointers.append(allocate(512 * (i + n + 1)))
    while pointers:
        runtime.cudaFree(pointers.pop())


def serve(n):
    pointers = []
    for _ in range(60):
        work(pointers, n)
        keeps()


threads = [threading.Thread(target=serve, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
