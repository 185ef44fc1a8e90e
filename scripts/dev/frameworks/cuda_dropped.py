"""cuda-python: a plan frees its buffers when it ends, but not that of its constants; mended: that, too."""
import ctypes

from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "residue", "at": ["# plan"], "steps": 80, "bytes_per_step": 0, "holder": []}


class Plan:
    def __init__(self):
        self.constants, *self.buffers = [check(driver.cuMemAlloc(1 << 20)) for _ in range(10)]  # plan

    def run(self):
        for buffer in self.buffers:
            check(driver.cuMemcpyHtoD(buffer, numbers, 4096))
            check(driver.cuMemcpyDtoH(numbers, buffer, 4096))

    def close(self):
        for buffer in [self.constants, *self.buffers] if options.fixed else self.buffers:
            check(driver.cuMemFree(buffer))


options = arguments()
begin()
numbers = ctypes.create_string_buffer(4096)
plan = Plan()
for _ in range(40):
    plan.run()
    step(10 << 20)
plan.close()
left = 0 if options.fixed else 1 << 20
for _ in range(40):
    buffer = check(driver.cuMemAlloc(8192))
    check(driver.cuMemcpyDtoH(numbers, buffer, 4096))
    check(driver.cuMemFree(buffer))
    step(left)
