"""Which of the queries that leaktrace makes of the driver are allowed while a stream is captured. Prints
one JSON line.
"""
import ctypes
import json

cu = ctypes.CDLL("libcuda.so.1")
handle = ctypes.c_void_p


def check(code):
    if code != 0:
        raise SystemExit(f"the driver answers {code}")


check(cu.cuInit(0))
context, stream, graph, memory = handle(), handle(), handle(), ctypes.c_ulonglong()
check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cu.cuCtxSetCurrent(context))
check(cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
check(cu.cuStreamCreate(ctypes.byref(stream), 1))
pool, words = handle(), (ctypes.c_ulonglong * 8)()
check(cu.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0))
first, second = ctypes.byref(words), ctypes.byref(words, 32)
QUERIES = {
    "cuMemGetInfo": lambda: cu.cuMemGetInfo_v2(first, second),
    "cuCtxGetCurrent": lambda: cu.cuCtxGetCurrent(first),
    "cuCtxGetDevice": lambda: cu.cuCtxGetDevice(first),
    "cuMemPoolGetAttribute": lambda: cu.cuMemPoolGetAttribute(pool, 5, first),
    "cuDeviceGetDefaultMemPool": lambda: cu.cuDeviceGetDefaultMemPool(first, 0),
    "cuDeviceGetMemPool": lambda: cu.cuDeviceGetMemPool(first, 0),
    "cuMemGetAddressRange": lambda: cu.cuMemGetAddressRange_v2(first, second, memory),
    "cuPointerGetAttribute": lambda: cu.cuPointerGetAttribute(first, 9, memory),
    "cuStreamIsCapturing": lambda: cu.cuStreamIsCapturing(stream, first),
    "cuStreamGetCtx": lambda: cu.cuStreamGetCtx(stream, first),
    "cuDeviceTotalMem": lambda: cu.cuDeviceTotalMem_v2(first, 0),
}
answers = {}
for mode, name in ((0, "global"), (1, "thread-local"), (2, "relaxed")):
    for query, ask in QUERIES.items():
        check(cu.cuStreamBeginCapture_v2(stream, mode))
        code = ask()
        # A query that is not allowed spoils the capture: 901 here.
        ended = cu.cuStreamEndCapture(stream, ctypes.byref(graph))
        if ended == 0:
            cu.cuGraphDestroy(graph)
        answers[f"{query}, {name}"] = [code, ended]
print(json.dumps(answers))
