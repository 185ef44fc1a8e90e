"""numba: each batch is loaded into new pinned memory, which a history keeps; mended: one buffer serves all."""
import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# pinned"], "steps": 120, "bytes_per_step": 131072, "holder": ["history"]}

options = arguments()
history = []
device = cuda.device_array(131072 // 4, np.float32)
for number in range(120):
    if not (options.fixed and history):
        history.append(cuda.pinned_array(131072 // 4, np.float32))  # pinned
    device.copy_to_device(history[-1])
    step(131072 * len(history))
