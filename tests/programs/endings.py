"""Allocates through the runtime by ctypes, then ends in the way argv[1] names.

    endings.py HOW [LIBCUDART]
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time

how = sys.argv[1]
runtime = ctypes.CDLL(sys.argv[2] if len(sys.argv) > 2 else "libcudart.so.12")


def allocate(size):
    place = ctypes.c_void_p()
    status = runtime.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size))
    assert status == 0, status
    return place


def free(place):
    assert runtime.cudaFree(place) == 0


def churn():
    while True:
        free(allocate(7777))


def main():
    kept = [allocate(1001), allocate(2002)]
    free(allocate(5005))
    print("ending by", how, flush=True)
    if how == "return":
        return
    if how == "exit":
        sys.exit(3)
    if how == "message":
        sys.exit("a message")
    if how == "_exit":
        os._exit(4)
    if how == "abort":
        os.abort()
    if how == "exception":
        raise RuntimeError(f"{len(kept)} kept")
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if how == "handled":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if how == "thread":
        # Ends the thread, not the program.
        thread = threading.Thread(target=lambda: (allocate(3003), sys.exit(6)))
        thread.start()
        thread.join()
    if how == "atexit":
        atexit.register(lambda: print("at exit", allocate(4004).value is not None))
    if how == "daemons":
        for _ in range(4):
            threading.Thread(target=churn, daemon=True).start()
        time.sleep(0.1)
    if how == "fork":
        pid = os.fork()
        if pid == 0:
            status = runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(8))
            print("child", status, flush=True)
            os._exit(7)
        print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    if how == "sigwait":
        # Whoever may take a signal is the program's choice.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        # Often, for a thread that should not be there may not have begun yet.
        for _ in range(20_000):
            os.kill(os.getpid(), signal.SIGUSR1)
            got = signal.sigwait([signal.SIGUSR1])
        print("got", got)
    if how == "exec":
        os.execv(sys.executable, [sys.executable, __file__, "return", *sys.argv[2:]])


main()
