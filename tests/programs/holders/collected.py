"""Blocks in reference cycles, which only the garbage collector's runs free, now and then. Without a framework: the
function by which PyTorch's allocator reports each block is called for them.
"""

import ctypes
import gc


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int8), ("index", ctypes.c_int8)]


python = ctypes.PyDLL(None)
# c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device)
report = python._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, Device]
report.restype = None
BYTES = 4096
gc.disable()
alive, made = 0, 0


def tell(block, change):
    global alive
    alive += change
    report(block, change, alive, 1 << 20, Device(1, 0))


class Block:
    def __init__(self):
        global made
        made += 1
        self.address = 0x7000000 + made * BYTES
        self.itself = self
        tell(self.address, BYTES)

    def __del__(self):
        tell(self.address, -BYTES)


for step in range(100):
    Block()
    if step in (4, 13, 17, 31, 37, 52, 55, 71, 78, 93):
        gc.collect()
    python.leaktrace_step(None)
