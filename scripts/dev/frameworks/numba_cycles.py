"""numba: a search's nodes refer to their parents, and the garbage collector is off; mended: it runs every 16 searches."""
import gc

import numpy as np
from counting import arguments, step
from numba import cuda

TRUTH = {"kind": "leak", "also": ["growing", "pending-gc"], "at": ["# state"], "steps": 160, "bytes_per_step": 98304,
         "holder": []}


class Node:
    live = 0

    def __init__(self, parent=None):
        self.parent, self.children = parent, []
        self.state = cuda.device_array(8192, np.float32)  # state
        Node.live += 1

    def __del__(self):
        Node.live -= 1

    def grow(self):
        self.children.append(Node(self))
        return self.children[-1]


def search():
    Node().grow().grow().state.copy_to_host()


options = arguments()
gc.disable()
for number in range(160):
    search()
    if options.fixed and number % 16 == 15:
        gc.collect()
    step(32768 * Node.live)
