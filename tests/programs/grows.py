"""Takes memory from a runtime that ctypes loads, step by step, and keeps as much of it as it is told.

    grows.py LIBCUDART STEPS [--before BYTES] [--first BYTES] [--second BYTES] [--newest BYTES] [--from STEP] [--kill STEP] [--wait] [--exit STATUS]
"""

import argparse
import ctypes
import os
import signal
import sys

parser = argparse.ArgumentParser()
parser.add_argument("runtime")
parser.add_argument("steps", type=int)
parser.add_argument("--before", type=int, default=0, help="bytes that are kept from before the first step")
parser.add_argument("--first", type=int, default=0, help="bytes of each step that first() keeps")
parser.add_argument("--second", type=int, default=0, help="bytes of each step that second() keeps")
parser.add_argument("--newest", type=int, default=0, help="bytes of each step, of which newest() keeps the last 5")
parser.add_argument("--from", dest="begin", type=int, default=1, help="the step from which it keeps")
parser.add_argument("--kill", type=int, default=0, help="dies by SIGKILL when this step ended")
parser.add_argument("--wait", action="store_true", help="says so and stays when all steps are made")
parser.add_argument("--exit", type=int, default=0)
arguments = parser.parse_args()
runtime = ctypes.CDLL(arguments.runtime)
runtime.cudaFree.argtypes = [ctypes.c_void_p]
process = ctypes.CDLL(None)


def first(place, size):
    runtime.cudaMalloc(ctypes.byref(place), size)  # the first line that keeps
    return place


def second(place, size):
    runtime.cudaMalloc(ctypes.byref(place), size)  # the second line that keeps
    return place


def newest(kept, size):
    place = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size))  # the line that keeps the newest
    kept.append(place)
    if len(kept) > 5:
        runtime.cudaFree(kept.pop(0))


def take(kept, line):
    # The same way to what is kept and to what is not.
    for size, keeps in ((4096, False), (kept, True)):
        if size:
            place = line(ctypes.c_void_p(), ctypes.c_size_t(size))
            if not keeps:
                runtime.cudaFree(place)


if arguments.before:
    runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(arguments.before))
kept = []
for step in range(1, arguments.steps + 1):
    take(arguments.first if step >= arguments.begin else 0, first)
    take(arguments.second if step >= arguments.begin else 0, second)
    if arguments.newest:
        newest(kept, arguments.newest)
    # Where it is not recorded, nobody counts its steps.
    if hasattr(process, "leaktrace_step"):
        process.leaktrace_step(None)
    if step == arguments.kill:
        os.kill(os.getpid(), signal.SIGKILL)
print("ready", flush=True)
if arguments.wait:
    signal.pause()
sys.exit(arguments.exit)
