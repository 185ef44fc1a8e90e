"""Threads that take blocks from a stand-in for CuPy's pool, and keep one of each step. Prints the bytes that are in use.

    pool.py FOLDER LIBCUDART [THREADS | loop]

FOLDER has the package. What the other threads keep goes back on the first one. With `loop` its steps are told by nothing but
loops of its own, in which one call takes two blocks.
"""

import ctypes
import sys
import threading

sys.path.insert(0, sys.argv[1])
from cupy.cuda import memory, memory_hook, pinned_memory  # noqa: E402, F401

BYTES = 4096
leaktrace = ctypes.CDLL(None)
runtime = ctypes.CDLL(sys.argv[2])
segment = ctypes.c_uint64()
assert runtime.cudaMalloc(ctypes.byref(segment), ctypes.c_size_t(1 << 24)) == 0
memory.grow(segment.value)
kept = []


class Array(ctypes.c_uint64):
    def __del__(self):
        if self.value:
            memory.give_back(self.value, BYTES)


def empty():
    return Array(memory.take(BYTES))  # allocates


def work(rounds):
    for _ in range(rounds):
        passing = empty()
        kept.append(empty())
        del passing


def solve(rounds):
    done = 0
    while done < rounds:
        passing = empty()
        kept.append([Array(address) for address in memory.take_two(BYTES)])
        del passing
        done += 1


if sys.argv[3:] == ["loop"]:
    for first in range(30):
        kept.append([Array(address) for address in memory.take_two(BYTES)])
        passing = empty()
        del passing
    solve(30)
    sys.exit()

for _ in range(40):
    work(1)
    leaktrace.leaktrace_step(None)
for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0):
    thread = threading.Thread(target=work, args=(5,))
    thread.start()
    thread.join()
    # Given back by another thread than that which took them.
    del kept[-5:]
leaktrace.leaktrace_step(None)
print("hooks", sorted(memory_hook.get_memory_hooks()))
print("used", memory.used_bytes())
