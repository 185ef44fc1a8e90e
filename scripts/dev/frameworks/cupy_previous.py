"""CuPy: a step's features live until the next has made its own; mended: they end with the step."""
from cupycounted import arguments, cupy, step

TRUTH = {"kind": "carry-over", "at": ["# features"], "steps": 80, "bytes_per_step": 8388608, "holder": []}

options = arguments()
weights = cupy.random.random((256, 1024), dtype=cupy.float32)


def run():
    for _ in range(80):
        step()
        features = cupy.maximum(cupy.ones((2048, 256), cupy.float32) @ weights, 0)  # features
        float(features.mean())
        if options.fixed:
            del features


run()
