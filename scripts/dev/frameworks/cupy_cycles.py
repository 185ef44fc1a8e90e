"""CuPy: nodes of a search refer to their parents, and the garbage collector is off; mended: by weak references."""
import gc
import weakref

from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "also": ["growing", "pending-gc"], "at": ["# state"], "steps": 160, "bytes_per_step": 98304,
         "holder": []}


class Node:
    def __init__(self, parent=None):
        self.parent = weakref.ref(parent) if parent and options.fixed else parent
        self.children = []
        self.state = cupy.zeros(8192, cupy.float32)  # state

    def grow(self):
        self.children.append(Node(self))
        return self.children[-1]


def search():
    root = Node()
    return float(root.grow().grow().state[0])


options = arguments()
gc.disable()
for number in range(160):
    step()
    search()
