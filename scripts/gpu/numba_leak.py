"""numba-cuda, which reaches the driver by ctypes or cuda-bindings."""
import ctypes
from numba import cuda
import numpy

step = ctypes.CDLL(None).leaktrace_step
kept = []
for number in range(60):
    kept.append(cuda.device_array((512, 512), dtype=numpy.float32))  # leaks 1048576
    step(None)
