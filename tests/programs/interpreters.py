"""Allocates in the first interpreter, in a second one on the same thread, and in the first again. For CPython 3.11 and later.

    interpreters.py LIBCUDART
"""
import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])

INSIDE = """
import ctypes
runtime = ctypes.CDLL(%r)

def inside():
    runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4321)

inside()
""" % sys.argv[1]


def first(size):
    runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), size)


def second():
    # One that shares the GIL: ctypes is not to be had in others.
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters

        made = interpreters.create("legacy")
    else:
        import _xxsubinterpreters as interpreters

        made = interpreters.create(isolated=False)
    failed = interpreters.run_string(made, INSIDE)
    if failed is not None:
        raise SystemExit(str(failed))
    interpreters.destroy(made)


first(1111)
second()
first(2222)
