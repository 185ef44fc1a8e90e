"""A process that has imported a framework and forks for each program: started by `execute`, with the framework's name. Its
tasks come as lines of JSON.

In the child, the program runs as `__main__` would. Counted, it also says what the framework itself knows of its blocks
(`counted_torch`, `counted_jax`). Knows no plan and no leaktrace.
"""

import importlib
import json
import os
import signal
import sys

count = importlib.import_module(f"counted_{sys.argv[1]}").count


def redirect(folder):
    os.chdir(folder)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def wait(child, seconds):
    """Waits for the child, killing it after so many seconds; returns its exit status, negative for a signal."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(seconds)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    return os.waitstatus_to_exitcode(status)


for line in sys.stdin:
    task = json.loads(line)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        break
    print(json.dumps(wait(child, task["seconds"])), flush=True)
else:
    os._exit(0)

redirect(task["folder"])
program = task["program"]
if task["steps"]:
    count(program, task["steps"], task["out"])
sys.argv[:] = [program]
__file__ = program
code = compile(open(program).read(), program, "exec")
exec(code, globals())
