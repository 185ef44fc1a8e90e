"""CuPy's pool, by the main thread and by three others: what is in use of it is known to the byte, in every step."""
import ctypes
import threading
import cupy

step = ctypes.CDLL(None).leaktrace_step
pool = cupy.get_default_memory_pool()
kept, turns = [], [threading.Event() for _ in range(3)]


def work(turn, sizes=(512, 1 << 20, 3 << 20)):
    turn.wait()
    for size in sizes:
        here = cupy.zeros(size, dtype=cupy.uint8)
        other = here + cupy.uint8(1)
        del here
    turn.lent = other


threads = [threading.Thread(target=work, args=(turn,)) for turn in turns]
for thread in threads:
    thread.start()
for number in range(60):
    passing = cupy.ones((300, 300 + number * 7 % 20), dtype=cupy.float32)
    kept.append(cupy.zeros((512, 512), dtype=cupy.float32))  # leaks 1048576
    float((passing @ passing.T).sum())
    if number % 20 == 10:
        # What it makes is given back here.
        turns[number // 20].set()
        threads[number // 20].join()
        del turns[number // 20].lent
    step(None)
    print("USED", number + 1, pool.used_bytes())
