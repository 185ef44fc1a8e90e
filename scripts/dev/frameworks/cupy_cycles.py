"""CuPy: nodes of a search refer to their parents, and the garbage collector is off; mended: it runs every 16 searches."""
import gc

from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "also": ["growing", "pending-gc"], "at": ["# state"], "steps": 160, "bytes_per_step": 98304,
         "holder": []}


class Node:
    def __init__(self, parent=None):
        self.parent, self.children = parent, []
        self.state = cupy.zeros(8192, cupy.float32)  # state

    def grow(self):
        self.children.append(Node(self))
        return self.children[-1]


def search():
    return float(Node().grow().grow().state[0])


options = arguments()
gc.disable()
for number in range(160):
    step()
    search()
    if options.fixed and number % 16 == 15:
        gc.collect()
