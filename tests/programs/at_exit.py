"""Allocates while the interpreter ends, in an atexit function that comes before every other: on the main thread, or on a
daemon thread that the function waits for. usage: at_exit.py RUNTIME main|thread"""
import atexit
import ctypes
import sys
import threading

runtime = ctypes.CDLL(sys.argv[1])


def churn():
    for _ in range(3000):
        p = ctypes.c_void_p()
        runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1000))
        runtime.cudaFree(p)


def when_told():
    told.wait()
    churn()
    done.set()


def tell():
    told.set()
    done.wait()


told, done = threading.Event(), threading.Event()
threading.Thread(target=when_told, daemon=True).start()
churn()
atexit.register(churn if sys.argv[2] == "main" else tell)
print("done")
