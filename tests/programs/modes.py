"""Calls the driver and the runtime by ctypes, opened in the mode that argv[1] names; keeps 1000 of 3000 bytes of each."""

import ctypes
import os
import sys

mode = {
    "default": ctypes.DEFAULT_MODE,
    "global": ctypes.RTLD_GLOBAL,
    "now": os.RTLD_NOW,
    "deep": os.RTLD_NOW | os.RTLD_DEEPBIND,
}[sys.argv[1]]
names = sys.argv[2:] or ["libcuda.so.1", "libcudart.so.12"]


def missing(name):
    """Whether the program's own scope has it, and in which words it has not."""
    try:
        return bool(getattr(ctypes.CDLL(None), name))
    except AttributeError as error:
        return str(error)


print(missing("cuMemAlloc_v2"), missing("cudaMalloc"))
for name in names:
    library = ctypes.CDLL(name, mode=mode)
    if "cudart" in name:
        allocate, free = library.cudaMalloc, library.cudaFree
    else:
        context = ctypes.c_void_p()
        assert library.cuInit(0) == 0
        assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert library.cuCtxSetCurrent(context) == 0
        allocate, free = library.cuMemAlloc_v2, library.cuMemFree_v2
    kept, freed = ctypes.c_uint64(), ctypes.c_uint64()
    assert allocate(ctypes.byref(kept), ctypes.c_size_t(1000)) == 0
    assert allocate(ctypes.byref(freed), ctypes.c_size_t(2000)) == 0
    assert free(freed) == 0
    print(name, missing("cuMemAlloc_v2"), missing("cudaMalloc"))
