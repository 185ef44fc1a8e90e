"""Takes memory from the driver over and over, looked up anew each time, and keeps it, until the file `stop` is there. Needs
no PyTorch."""

import ctypes
import os
import time

context = ctypes.c_void_p()
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)


def take():
    place = ctypes.c_uint64()
    ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(4096))  # the line that takes
    return place.value


kept = [take()]
print("ready", flush=True)
while not os.path.exists("stop"):
    kept.append(take())
    time.sleep(0.002)
print("over", flush=True)
