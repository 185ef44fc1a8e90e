"""cuda-python: what fails in every third batch does not free its buffer; mended: it does."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# taken"], "steps": 150, "bytes_per_step": 65536, "every": 3, "holder": []}

options = arguments()
begin()
live = 0


def work(number):
    global live
    buffer = check(driver.cuMemAlloc(65536))  # taken
    live += 65536
    try:
        if number % 3 == 0:
            raise ValueError("a bad batch")
        check(driver.cuMemFree(buffer))
        live -= 65536
    except ValueError:
        if options.fixed:
            check(driver.cuMemFree(buffer))
            live -= 65536
        raise


for number in range(150):
    try:
        work(number)
    except ValueError:
        pass
    step(live)
