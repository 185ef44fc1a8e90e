"""CuPy, whose runtime is linked statically, without its pool: what is kept is the driver's memory."""
import ctypes
import cupy

step = ctypes.CDLL(None).leaktrace_step
cupy.cuda.set_allocator(None)
kept = []
for number in range(60):
    passing = cupy.ones((128, 128), dtype=cupy.float32)
    kept.append(cupy.zeros((512, 512), dtype=cupy.float32))  # leaks 1048576
    float(passing.sum())
    step(None)
