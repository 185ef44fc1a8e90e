"""Serves requests by the driver alone: each is copied in and its answer out, and only now and then memory is taken. Prints how
many there were.

    requests.py STYLE
"""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
N = 120
place = ctypes.c_uint64()
host = ctypes.create_string_buffer(4096)
copy_in, copy_out = driver.cuMemcpyHtoD_v2, driver.cuMemcpyDtoH_v2
kept = []


def take():
    driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(4096))  # taken
    return place.value


at = ctypes.c_uint64(take())


def answer():
    copy_in(at, host, 4096)
    copy_out(host, at, 4096)


def short():
    for _ in range(N):
        answer()


# A body whose jump back does not fit in one byte: only the variable shows that another iteration began.
LONG = "def long():\n    a = b = True\n    for _ in range(N):\n        copy_in(at, host, 4096)\n" + "        a, b = b, a\n" * 70
exec(compile(LONG, __file__, "exec"))


def at_one_place():
    for _ in range(N):
        copy_in(at, host, 4096)


def keeping():
    for n in range(N):
        answer()
        if n % 5 == 0:
            kept.append(take())


def while_there_are():
    waiting = list(range(N))
    while waiting:
        waiting.pop()
        answer()


globals()[sys.argv[1]]()
print(N)
