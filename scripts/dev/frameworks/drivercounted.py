"""As `counted`, for programs without PyTorch: the count is the program's own, of the bytes that it has on the device or in
pinned memory by then."""
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
