"""ONNX Runtime: every fifth request has a tenant of its own, whose cycle holds a session, and the garbage collector is off;
mended: it runs when a tenant leaves."""
import gc

from counting import arguments, step
import onnxserved

TRUTH = {"kind": "leak", "also": ["growing", "pending-gc"], "at": ["onnxserved.py # session"], "steps": 120, "bytes_per_step": 1048576, "every": 5,
         "holder": []}


class Tenant:
    live = 0

    def __init__(self):
        self.session = onnxserved.session()
        self.handlers = {"run": self.run}
        Tenant.live += 1

    def __del__(self):
        Tenant.live -= 1

    def run(self, x):
        return self.session.run(None, {"x": x})[0]


options = arguments()
gc.disable()
tenant = None
for number in range(120):
    if number % 5 == 0:
        tenant = Tenant()
        if options.fixed:
            gc.collect()
    tenant.handlers["run"](onnxserved.request())
    step(1048576 * Tenant.live)
