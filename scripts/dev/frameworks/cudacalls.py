"""What the programs with cuda-python share: a context, and results that are checked."""
from cuda.bindings import driver


def check(result):
    """Returns what a call gives beside its status."""
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) == 2 else result[1:]


def begin():
    check(driver.cuInit(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))))
