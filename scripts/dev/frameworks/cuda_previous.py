"""cuda-python: the field of the previous step is freed when the next has been made; mended: before that."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "carry-over", "at": ["# field"], "steps": 100, "bytes_per_step": 4194304, "holder": []}

options = arguments()
begin()
constant = check(driver.cuMemAlloc(1 << 20))
field = None
for _ in range(100):
    if options.fixed and field is not None:
        check(driver.cuMemFree(field))
        field = None
    following = check(driver.cuMemAlloc(4194304))  # field
    check(driver.cuMemcpyDtoD(following, constant, 1 << 20))
    if field is not None:
        check(driver.cuMemFree(field))
    field = following
    step(4194304)
