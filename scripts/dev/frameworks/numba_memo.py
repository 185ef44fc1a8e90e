"""numba: tables on the device are remembered by request, each of which is new; mended: by one of 12 kinds."""
import functools

import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# table"], "steps": 150, "bytes_per_step": 131072,
         "holder": ["table_for"]}

options = arguments()


@functools.lru_cache(maxsize=None)
def table_for(key):
    return cuda.to_device(np.zeros(32768, np.float32))  # table


for number in range(150):
    table_for(number % 12 if options.fixed else number).copy_to_host()
    step(131072 * table_for.cache_info().currsize)
