"""cuda-python: temporary memory of a pool is freed but for the last stage's; mended: all of it."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# stage"], "steps": 100, "bytes_per_step": 32768, "holder": []}

options = arguments()
begin()
stream = check(driver.cuStreamCreate(0))
live = 0
for number in range(100):
    stages = [check(driver.cuMemAllocAsync(32768, stream)) for _ in range(4)]  # stage
    for stage in stages if options.fixed else stages[:-1]:
        check(driver.cuMemFreeAsync(stage, stream))
    live += 0 if options.fixed else 32768
    step(live)
