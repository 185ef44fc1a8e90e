"""Allocates from everywhere Python code can run, through a runtime that ctypes loads and calls without the GIL, and
prints what `traceback.extract_stack` said at each allocation. For CPython 3.8 and later.

    stacks.py LIBCUDART

Output: JSON, {"bytes": [[file, line, [names it may go by]], ...innermost first], ...}.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import re
import sys
import threading
import traceback

runtime = ctypes.CDLL(sys.argv[1])
told = {}


def qualified(frame):
    return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)


def allocate():
    size = ctypes.c_size_t(10001 + 2 * len(told))
    place = ctypes.c_void_p()
    frame, names = sys._getframe(), []
    while frame is not None:
        names.append(qualified(frame))
        frame = frame.f_back
    # One line for both, so that they agree on it.
    summary = traceback.extract_stack(); runtime.cudaMalloc(ctypes.byref(place), size)  # noqa: E702
    stack = [[f.filename, f.lineno, sorted({f.name, n})] for f, n in zip(reversed(summary), names)]
    assert len(summary) == len(names)
    told[size.value] = stack


def nested(depth):
    if depth:
        return nested(depth - 1)
    allocate()


def generator(depth):
    if depth:
        yield from generator(depth - 1)
    else:
        allocate()
        yield 1


def sending():
    received = yield
    while True:
        allocate()
        received = yield received


async def coroutine(depth):
    if depth:
        return await coroutine(depth - 1)
    allocate()
    await asyncio.sleep(0)
    allocate()


async def numbers():
    for i in range(2):
        yield i


async def everything():
    await coroutine(3)
    await asyncio.gather(coroutine(0), coroutine(1))
    async for _ in numbers():
        allocate()


class Größe:
    def __init__(self):
        allocate()

    def méthode_данные(self):
        allocate()

    def __getattr__(self, name):
        allocate()
        return name

    def __del__(self):
        allocate()

    @property
    def attribute(self):
        allocate()

    @staticmethod
    def fixed():
        allocate()

    @classmethod
    def of_class(cls):
        allocate()


class Often:
    def __init__(self, last):
        if last:
            allocate()


def specialised():
    """Called so often that newer versions take a shorter way, with a frame of their own under `__init__`."""
    for n in range(100):
        Often(n == 99)


class Data:
    def __init__(self):
        allocate()

    def __getitem__(self, n):
        allocate()

    @property
    def attribute(self):
        allocate()


def batches(count):
    for _ in range(count):
        yield allocate()


def specialised_places():
    """What is called from one place before and after it is specialised."""
    for n in range(40):
        data = Data()
        data[n]; data.attribute
    for _ in batches(40):
        allocate()


@functools.lru_cache(maxsize=None)
def cached(_):
    allocate()


@contextlib.contextmanager
def managed():
    allocate()
    yield
    allocate()


def over_many_lines():
    return [
        1,
        (
            allocate(),
            2,
        ),
        allocate()
        or 3,
    ]


def while_handling():
    try:
        raise ValueError
    except ValueError:
        allocate()
    finally:
        allocate()


def callbacks():
    sorted([1, 2], key=lambda v: allocate() or v)
    list(map(lambda v: allocate(), (1,)))
    re.sub("a", lambda match: allocate() or "b", "a")
    functools.reduce(lambda a, b: allocate(), (1, 2))
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def from_c(left, right):
        allocate() if not done else None
        done.append(1)
        return 0

    done = []
    array = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(array, ctypes.c_size_t(2), ctypes.c_size_t(4), compare(from_c))


def comprehensions():
    [allocate() for _ in (1,)]
    {allocate() for _ in (1,)}
    {1: allocate() for _ in (1,)}
    list(allocate() for _ in (1,))


def in_threads():
    threads = [threading.Thread(target=nested, args=(n,), name="thread %d" % n) for n in (0, 2)]
    for thread in threads:
        thread.start()
        thread.join()


def executed():
    exec(compile("\n\n\nclass Made:\n    allocate()\n\n\ndef made():\n\n    allocate()\n\nmade()\n", "<made up>", "exec"))
    eval("allocate()")
    space = {"allocate": allocate}
    exec("\n" * 300 + "def far():\n" + "\n" * 200 + "    allocate()\nfar()", space)


def again():
    """The same places once more: what was seen before must not be mixed up."""
    for _ in range(3):
        allocate()


nested(0)
nested(90)
next(generator(3))
waiting = sending()
next(waiting)
waiting.send(1)
asyncio.run(everything())
made = Größe()
made.méthode_данные()
made.missing
made.attribute
Größe.fixed()
Größe.of_class()
del made
specialised()
specialised_places()
cached(1)
with managed():
    pass
over_many_lines()
while_handling()
callbacks()
comprehensions()
in_threads()
executed()
again()
json.dump(told, sys.stdout)
