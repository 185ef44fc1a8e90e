"""numba: mapped host memory is taken for each batch's number; mended: for each of four slots, in the first batches."""
import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# mapped"], "steps": 120, "bytes_per_step": 65536,
         "holder": ["staged"]}

options = arguments()
staged = {}
result = cuda.device_array(1, np.float32)


def stage(slot, batch):
    if slot not in staged:
        staged[slot] = cuda.mapped_array(batch.shape, batch.dtype)  # mapped
    staged[slot][:] = batch


for number in range(120):
    stage(number % 4 if options.fixed else number, np.full(16384, number, np.float32))
    result.copy_to_host()
    step(65536 * len(staged))
