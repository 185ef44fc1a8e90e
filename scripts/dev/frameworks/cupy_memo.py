"""CuPy: windows are memoized by their exact length, which is another one each time; mended: rounded up to one of eight."""
import functools

from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# window"], "steps": 150, "bytes_per_step": 400384,
         "holder": ["window"]}

options = arguments()


@functools.lru_cache(maxsize=None)
def window(length):
    return cupy.hanning(length).astype(cupy.float32)  # window


def spectrum(number):
    length = 100_000 + number % 8 if options.fixed else 100_000 + number
    signal = cupy.random.random(length, dtype=cupy.float32)
    return float((signal * window(length)).sum())


for number in range(150):
    step()
    spectrum(number)
