"""cuda-python: what fails in every third batch does not free its buffer; mended: it does."""
from cuda.bindings import driver
from drivercounted import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# taken"], "steps": 150, "bytes_per_step": 65536, "every": 3, "holder": []}


def check(result):
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) == 2 else result[1:]


options = arguments()
check(driver.cuInit(0))
device = check(driver.cuDeviceGet(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
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
