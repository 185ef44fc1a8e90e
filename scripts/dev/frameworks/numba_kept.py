"""numba: what is copied to the device for each batch is kept; mended: only the last."""
import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# copied"], "steps": 150, "bytes_per_step": 262144, "holder": ["batches"]}

options = arguments()
batches = []
for number in range(150):
    batch = cuda.to_device(np.zeros((256, 256), np.float32))  # copied
    if options.fixed:
        batches.clear()
    batches.append(batch)
    batch.copy_to_host()
    step(262144 * len(batches))
