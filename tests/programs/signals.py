"""Names each signal that it gets, one a line, until the last one: that ends it, by the signal or with a status.

    signals.py LAST [STATUS] [--echo]      --echo: has LAST sent to its parent by a child when the first signal came
"""

import os
import signal
import sys

# Longer than any signal is under way, shorter than the test's own limit.
PATIENCE = 20

last, status = signal.Signals[sys.argv[1]], [int(a) for a in sys.argv[2:] if a.isdigit()]
echo = "--echo" in sys.argv
watched = {signal.Signals[f"SIG{name}"] for name in "HUP INT QUIT USR1 USR2 TERM WINCH".split()}
signal.pthread_sigmask(signal.SIG_BLOCK, watched)
print("ready", flush=True)
while True:
    got = signal.sigtimedwait(watched, PATIENCE)
    name = signal.Signals(got.si_signo).name if got else "nothing"
    print(name, flush=True)
    if name in ("nothing", last.name):
        break
    if echo:
        echo, leaktrace = False, os.getppid()
        if not os.fork():
            os.kill(leaktrace, last)
            os._exit(0)
if status:
    sys.exit(status[0])
signal.signal(last, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
os.kill(os.getpid(), last)
