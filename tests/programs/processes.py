"""Allocates, then has two other processes allocate: started by multiprocessing in the way argv[1] names (`fork` only
computes there, for CUDA does not survive it), or `pool` for workers that take several tasks each.

    processes.py fork|spawn|forkserver|pool
"""

import ctypes
import multiprocessing
import os
import sys


def allocate(size):
    runtime = ctypes.CDLL("libcudart.so.12")
    place = ctypes.c_void_p()
    status = runtime.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size))
    assert status == 0, status


def work(number):
    allocate(1000 + number)
    return number * number


def compute(number):
    return number * number


def report(task, number, queue):
    queue.put((number, task(number)))


def main():
    how = sys.argv[1]
    # The fork server is made before CUDA is touched; so are the workers of a pool that forks.
    context = multiprocessing.get_context("spawn" if how == "pool" else how)
    allocate(77)
    if how == "pool":
        with context.Pool(2) as pool:
            print(sorted(pool.map(work, range(1, 9))))
        return
    task = compute if how == "fork" else work
    queue = context.Queue()
    children = [context.Process(target=report, args=(task, number, queue)) for number in (1, 2)]
    for child in children:
        child.start()
    print(sorted(queue.get() for _ in children))
    for child in children:
        child.join()
        assert child.exitcode == 0


if __name__ == "__main__":
    main()
