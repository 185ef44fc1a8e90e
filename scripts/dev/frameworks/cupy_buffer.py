"""CuPy: a replay buffer is emptied every 25 steps, but for the batch that each of its passes sums up in; mended: emptied."""
from cupycounted import arguments, cupy, step

TRUTH = {"kind": "leak", "also": ["growing"], "at": ["# total"], "steps": 200, "bytes_per_step": 262144, "every": 25,
         "holder": ["totals"]}

options = arguments()
buffer, totals = [], []
for number in range(200):
    step()
    buffer.append(cupy.random.random((256, 256), dtype=cupy.float32))
    if len(buffer) == 25:
        total = cupy.stack(buffer).sum(axis=0)  # total
        totals.append(float(total.sum()) if options.fixed else total)
        buffer.clear()
        del total
