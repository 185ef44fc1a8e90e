"""Allocates from many threads at once, of a CPython without a GIL, while others end and code goes away, and prints what
`sys._getframe` said at each allocation, as `stacks.py` does.

    free_threads.py LIBCUDART
"""

import ctypes
import gc
import json
import sys
import threading

THREADS, WAVES, ROUNDS = 6, 5, 12
assert not sys._is_gil_enabled()
# One gives the interpreter up for the call, the other stays in it.
runtimes = ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[1])
told, sizes, lock, over = {}, iter(range(10001, 1 << 30, 2)), threading.Lock(), threading.Event()


# The line of the call in it.
CALL = 11


def allocate(kind):
    with lock:
        size = next(sizes)
    place, stack, frame = ctypes.c_void_p(), [], sys._getframe()
    while frame is not None:
        code = frame.f_code
        stack.append([code.co_filename, frame.f_lineno, [code.co_qualname]])
        frame = frame.f_back
    stack[0][1] = allocate.__code__.co_firstlineno + CALL
    told[size] = stack
    # Here.
    runtimes[kind].cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size))


def generated(number):
    """A function of its own, at a line of its own, as long as its number says."""
    body = "".join(f"    x = {i} + kind\n" for i in range(number * 3))
    source = "\n" * number + f"def made_{number}(kind):\n{body}    allocate(kind)\n"
    names = {"allocate": allocate}
    exec(compile(source, "<made>", "exec"), names)
    return names[f"made_{number}"]


made = [generated(number) for number in range(12)]


def deep(depth, kind):
    if depth:
        return deep(depth - 1, kind)
    allocate(kind)


def yielding(kind):
    while True:
        allocate(kind)
        yield


class Holder:
    def __init__(self, kind):
        allocate(kind)


def work(n):
    steps = yielding(n % 2)
    for i in range(ROUNDS):
        made[(n + i) % len(made)](i % 2)
        deep(n % 3, i % 2)
        next(steps)
        Holder(i % 2)


def make_code():
    """Code that goes away again, and with it the copies that this thread ran."""
    while not over.is_set():
        names = {}
        exec("def f(n):\n  return n and f(n - 1)\nf(3)", names)
        del names
        gc.collect()


churn = threading.Thread(target=make_code)
churn.start()
for wave in range(WAVES):
    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work(wave)
over.set()
churn.join()
assert len(told) == (THREADS + 1) * WAVES * ROUNDS * 4
json.dump(told, sys.stdout)
