"""cuda-python: buffers are freed every 16 steps, but for the second stream's; mended: those, too (a sawtooth)."""
from cuda.bindings import driver
from cudacalls import begin, check
from counting import arguments, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# buffer"], "steps": 160, "bytes_per_step": 32768, "holder": []}

options = arguments()
begin()
streams = [check(driver.cuStreamCreate(0)) for _ in range(2)]
waiting = []
live = 0


def work(stream):
    buffer, done = check(driver.cuMemAlloc(32768)), check(driver.cuEventCreate(0))  # buffer
    check(driver.cuMemsetD8Async(buffer, 0, 32768, stream))
    check(driver.cuEventRecord(done, stream))
    waiting.append((stream, done, buffer))


for number in range(160):
    for stream in streams:
        work(stream)
        live += 32768
    if number % 16 == 15:
        for stream, done, buffer in waiting:
            check(driver.cuEventSynchronize(done))
            check(driver.cuEventDestroy(done))
            if options.fixed or stream is streams[0]:
                check(driver.cuMemFree(buffer))
                live -= 32768
        waiting.clear()
    step(live)
