"""What the programs here share: `--fixed`, and a count of what each step adds that does not come from leaktrace.

At its end a program prints the number of its steps and the bytes that a step added in its second half, for the runner to
hold the stated truth against. Programs without a framework count for themselves what they have on the device or in pinned
memory; `counted` and `tfcounted` ask PyTorch and TensorFlow.
"""
import argparse
import atexit
import json

series = []


def step(count):
    """Call it once per request or batch, with the bytes by then."""
    series.append(count)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true", help="the mended form")
    return parser.parse_args()


@atexit.register
def tell():
    first = len(series) // 2 - 1
    slope = (series[-1] - series[first]) / (len(series) - 1 - first)
    print("counted", json.dumps({"steps": len(series), "bytes_per_step": slope}), flush=True)
