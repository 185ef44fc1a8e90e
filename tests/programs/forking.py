"""Forks while other threads allocate; each child allocates too.

    forking.py LIBCUDART
"""

import ctypes
import os
import sys
import threading
import warnings

warnings.simplefilter("ignore", DeprecationWarning)
runtime = ctypes.CDLL(sys.argv[1])
stop = threading.Event()


def allocate(size):
    place = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size)) == 0
    return place


def busy():
    while not stop.is_set():
        runtime.cudaFree(allocate(1000))


def child():
    allocate(777_777)
    for _ in range(50):
        runtime.cudaFree(allocate(1000))


threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(40):
    pid = os.fork()
    if pid == 0:
        try:
            child()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
print("all children did well")
