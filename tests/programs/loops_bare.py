"""Loops of plain Python that allocate through a CUDA runtime. Prints how many steps a person would count.

    loops_bare.py RUNTIME STYLE
"""

import ctypes
import functools
import sys
import textwrap

runtime = ctypes.CDLL(sys.argv[1])
told = 0


def allocate(size):
    pointer = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(pointer), size)
    return pointer


def free(pointer):
    runtime.cudaFree(pointer)


def step():
    global told
    told += 1


def work(n):
    first, second = allocate(512 * (n + 1)), allocate(1024)
    free(first)
    third = allocate(2048)
    free(second)
    free(third)


def forwarding(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def nested():
    for epoch in range(3):
        weights = allocate(4096)
        for n in range(15):
            work(n)
            step()
        free(weights)


def single():
    """Everything at one instruction of the loop."""
    for n in range(30):
        work(n)
        step()


def mapped():
    """C calls for each of several things, from one instruction of the loop."""

    def make(n):
        return allocate(512 * (n + 1))

    for n in range(30):
        blocks = list(map(make, range(3)))
        free(blocks[0])
        step()


def downwards():
    """Requests, each of which counts down and allocates at one instruction."""
    here = [0]

    def handle():
        for here[0] in range(5, 0, -1):
            allocate(512)

    while told < 30:
        allocate(4096)
        handle()
        step()


def set_up():
    """What is set up and wound up around it are loops, too, and no steps."""
    weights = {name: work(4) or allocate(512) for name in "abcdef"}
    for n in range(70):
        work(n)
        step()
    for name in "abc":
        work(2)
        free(weights.pop(name))


def wrapped():
    """The same through wrappers, with something else now and then."""
    wrapper = forwarding(forwarding(work))
    for n in range(40):
        wrapper(n)
        if n % 10 == 9:
            [work(m) for m in range(3)]
        step()


def generator():
    def items():
        for n in range(25):
            pointer = allocate(256)
            yield n
            free(pointer)

    for n in items():
        work(n)
        step()


def failing():
    n = 0
    while n < 35:
        n += 1
        try:
            pointer = allocate(512)
            if n % 3 == 0:
                raise ValueError
            work(n)
        except ValueError:
            work(1)
            continue
        finally:
            free(pointer)
            step()


def alone():
    """Nothing of the outer loop is seen but a call, in which a loop goes over the same items again."""
    layers = [object() for _ in range(4)]

    def forward(n):
        for i, layer in enumerate(layers):
            allocate(1024)

    for n in range(30):
        forward(n)
        step()


def keep(n):
    allocate(1024)
    allocate(2048)


IN_A_MODULE = """
for epoch in range(2):
    for n in items:
        if n % 2:
            work(n)
        else:
            work(n)
        step()
"""


def in_a_module(text=IN_A_MODULE):
    """Two calls by turns, of which the second stands later in the code; its variables are in no frame."""
    exec(text, {"items": list(range(20)), "work": keep, "step": step, "Manager": Manager})


class Manager:
    """An iterator, as an open file is."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration


def in_a_module_within():
    """The same in a `with`, of whose manager 3.14 and later leave two objects on the stack."""
    in_a_module("with Manager():" + textwrap.indent(IN_A_MODULE, "    "))


def awaited():
    """A coroutine made anew for each request, that keeps what it allocated; nothing else runs in between."""
    import asyncio

    class Kept:
        def __init__(self):
            self.block = allocate(1024)

        def __del__(self):
            free(self.block)

    async def request(n):
        block = Kept()
        allocate(2048)

    async def handle(n):
        await request(n)
        step()

    async def serve():
        for n in range(30):
            await handle(n)

    asyncio.run(serve())


def waiting():
    import asyncio

    async def request(n):
        await asyncio.sleep(0)
        work(n)

    async def serve():
        for n in range(20):
            await request(n)
            step()

    asyncio.run(serve())


globals()[sys.argv[2]]()
print(told)
