"""A process that has imported PyTorch and forks for each program: started by `execute`. Its tasks come as lines of JSON.

In the child, the program runs as `__main__` would. Counted, it also says what PyTorch's own allocator recorded:
which blocks were alive at the last step, where and in which step each was allocated. Knows no plan and no leaktrace.
"""

import builtins
import gc
import json
import os
import re
import signal
import sys

import torch

SERVER = __file__


def place(frames, program):
    """Returns the innermost frame in the program, as FILE:LINE."""
    for frame in frames:
        name = frame["filename"]
        if name == program or name.startswith("<"):
            name = re.sub(r"<cell \d+>", "<cell>", name.rsplit("/", 1)[-1])
            return f"{name}:{frame['line']}"
    return None


def ledger(program):
    """Goes through the allocator's trace; returns the blocks alive at its end, the bytes at the start of each
    step, and the total."""
    snapshot = torch.cuda.memory._snapshot()
    alive, series, total, sizes = {}, [], 0, {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                sizes[block["address"]] = block["size"]
    for entry in snapshot["device_traces"][0]:
        address, action = entry["addr"], entry["action"]
        if action == "alloc":
            if any(frame["name"] == "tick" and frame["filename"] == SERVER for frame in entry["frames"][:3]):
                series.append(total)
            size = -(-entry["size"] // 512) * 512
            alive[address] = (len(series), size, place(entry["frames"], program))
            total += size
        elif action == "free_completed" and address in alive:
            total -= alive.pop(address)[1]
    blocks = [(step, sizes.get(address, size), at) for address, (step, size, at) in alive.items()]
    return blocks, series, sum(sizes.values())


def count(program, steps, out):
    """Makes `__tick__` available, which is called at the start of each step and ends the program at the last."""
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=10_000_000)
    ticks = [0]

    def tick():
        torch.empty(1, device="cuda")
        ticks[0] += 1
        if ticks[0] == steps:
            # Reading the trace makes objects enough for a collection.
            gc.disable()
            allocated = torch.cuda.memory_allocated()
            blocks, series, total = ledger(program)
            with open(out, "w") as file:
                json.dump({"blocks": blocks, "series": series, "total": total, "allocated": allocated}, file)
            os._exit(0)

    builtins.__tick__ = tick


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
