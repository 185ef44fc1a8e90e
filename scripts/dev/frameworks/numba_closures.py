"""numba: what is to be done with a batch is kept as a closure over it; mended: it is done every 20 batches (a sawtooth)."""
import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# scores"], "steps": 160, "bytes_per_step": 131072,
         "holder": ["later"]}

options = arguments()
later = []
total = 0.0


def scored(batch):
    scores = cuda.device_array(batch.shape, np.float32)  # scores
    scores.copy_to_device(batch)

    def add():
        global total
        total += float(scores.copy_to_host().sum())

    return add


for number in range(160):
    batch = cuda.to_device(np.ones(32768, np.float32))
    later.append(scored(batch))
    if options.fixed and len(later) == 20:
        for job in later:
            job()
        later.clear()
    step(131072 * len(later))
