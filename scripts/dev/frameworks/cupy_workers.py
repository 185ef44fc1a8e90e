"""CuPy: two workers leave the tile of every job in a table of results; mended: whoever reads it takes it out."""
import queue
import threading

from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# tile"], "steps": 120, "bytes_per_step": 262144,
         "holder": ["results"]}

options = arguments()
jobs, done = queue.Queue(), queue.Queue()
results = {}


def render(number):
    grid = cupy.arange(65536, dtype=cupy.float32).reshape(256, 256)
    return cupy.sin(grid * number)  # tile


def work():
    while (number := jobs.get()) is not None:
        results[number] = render(number)
        done.put(number)


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(120):
    step()
    jobs.put(number)
    ready = done.get()
    tile = results.pop(ready) if options.fixed else results[ready]
    float(tile[0, 0])
for _ in threads:
    jobs.put(None)
for thread in threads:
    thread.join()
