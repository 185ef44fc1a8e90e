"""The benchmark behind scripts/dev/bench. Prints nanoseconds per `x = torch.empty(1024, device="cuda"); del x`.

Each mode runs in processes of its own, the modes interleaved over several rounds, so that a change of the machine's pace
meets all of them; within a process the best of many repeats counts. The bars are ratios of *net* costs: what a mode adds to
the bare pair. Needs nothing but the project's environment.

A training step is dearer than what is to be measured of it is small, so there the processes of a round live side by side and
take turns of a few steps, one after the other. A turn is compared with the bare one's in the same round of turns, and the bare
program runs twice: what the second differs from the first by is noise, most of it where things came to lie in memory.

`--instructions` counts instructions per pair instead, which do not wobble: by valgrind's callgrind. Few and many pairs are
made in one process; the difference, divided, is the cost of one.
"""

import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ.get("LIBRARY", ROOT / "target/release/libleaktrace.so"))
ROUNDS = int(os.environ.get("ROUNDS", "9"))
# Modes to count instructions of, with semicolons between; all if it is empty.
ONLY = os.environ.get("MODES", "")

LOOP = """
import json, sys, time, torch
mode, depth, repeats, pairs = sys.argv[1], int(sys.argv[2]), 15, 20000
if mode != "off":
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks=mode)
empty, clock = torch.empty, time.thread_time_ns

def measure():
    best = []
    for _ in range(repeats):
        start = clock()
        for _ in range(pairs):
            x = empty(1024, device="cuda"); del x
        best.append((clock() - start) / pairs)
    return min(best)

def at(frames):
    return measure() if frames <= 0 else at(frames - 1)

empty(1024, device="cuda")
print(json.dumps(at(depth)))
"""

# As many steps as each line says, when it says so, and the CPU time of each.
TRAIN = """
import json, sys, time, torch
if sys.argv[1] != "off":
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks=sys.argv[1])
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 4).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.zeros(4, 16, 64, device="cuda")

def step():
    start = time.process_time_ns()
    optimizer.zero_grad(); model(data).sum().backward(); optimizer.step()
    return time.process_time_ns() - start

for line in sys.stdin:
    print(json.dumps([step() for _ in range(int(line))]), flush=True)
"""
# Steps before anything counts; turns of a round, and their steps; those at a turn's begin that find the caches to be others'.
WARM, TURNS, STEPS, COLD = 60, 10, 20, 2

# For counting: each interval is FEW or MANY pairs from some frames deeper, and what it takes to say so.
PAIRS = """
import os, subprocess, sys, torch
mode, tell = sys.argv[1], sys.argv[2:]
if mode != "off":
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks=mode)
empty = torch.empty

def at(frames, pairs):
    if frames > 0:
        return at(frames - 1, pairs)
    for _ in range(pairs):
        x = empty(1024, device="cuda"); del x

def say(*what):
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    subprocess.run([*tell, *what, str(os.getpid())], check=True, env=clean, stdout=subprocess.DEVNULL)

for depth in (0, 20):
    at(depth, FEW)
say("--instr=on")
for depth in (0, 20):
    for pairs in (FEW, FEW, MANY):
        at(depth, pairs)
        say("--dump")
"""
FEW, MANY = 100, 1100

TRACED = {"LD_PRELOAD": str(LIBRARY), "LEAKTRACE_QUIET": "1"}
# (PyTorch's recorder, environment); `leaktrace` alone is the default, LEAKTRACE_STACKS=auto.
MODES = {
    "without": ("off", {}),
    "leaktrace": ("off", TRACED),
    "leaktrace, stacks=python": ("off", {**TRACED, "LEAKTRACE_STACKS": "python"}),
    "leaktrace, stacks=mixed": ("off", {**TRACED, "LEAKTRACE_STACKS": "mixed"}),
    "leaktrace, stacks=off": ("off", {**TRACED, "LEAKTRACE_STACKS": "off"}),
    "recorder, stacks=python": ("python", {}),
    "recorder, stacks=all": ("all", {}),
}


def run(mode, depth, folder):
    recorder, environment = MODES[mode]
    command = [ROOT / "scripts/simgpu", sys.executable, "-c", LOOP, recorder, str(depth)]
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=folder, check=True, capture_output=True)
    return float(json.loads(done.stdout))


def table(title, depth, unit, divide):
    samples = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            # Who goes first changes: a machine that grows hot or busy meets all modes alike.
            for mode in list(MODES)[:: 1 if turn % 2 else -1]:
                samples[mode].append(run(mode, depth, folder) / divide)
    middle = {mode: statistics.median(values) for mode, values in samples.items()}
    bare = middle["without"]
    net = {mode: figure - bare for mode, figure in middle.items()}
    python, everything = net["recorder, stacks=python"], net["recorder, stacks=all"]
    print(f"\n{title} ({ROUNDS} rounds; median, and the spread of the middle half)")
    print(f"{'':26}{unit:>10}{'spread':>9}{'net':>10}{'× bare':>9}{'/ rec. python':>15}{'/ rec. all':>12}")
    for mode, figure in middle.items():
        values = sorted(samples[mode])
        spread = values[-1 - len(values) // 4] - values[len(values) // 4]
        ratios = "".join(
            f"{net[mode] / of:{width}.3f}" if mode.startswith("leaktrace") and of > 0 else " " * width
            for of, width in ((python, 15), (everything, 12))
        )
        print(f"{mode:26}{figure:10.1f}{spread:9.1f}{net[mode]:10.1f}{figure / bare:9.3f}{ratios}")


class Training:
    """A training that waits for its turns."""

    def __init__(self, mode, folder):
        recorder, environment = MODES.get(mode, MODES["without"])
        command = [ROOT / "scripts/simgpu", sys.executable, "-c", TRAIN, recorder]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=folder, **pipes)

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return [ns / 1000 for ns in json.loads(self.process.stdout.readline())]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def training():
    modes = ["without", "without, again", *list(MODES)[1:]]
    # By mode: the middle of the steps of every turn, and what it is of the bare one's, of the median step and of the mean.
    steps, medians, means = ({mode: [] for mode in modes} for _ in range(3))
    for round in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            trainings = {mode: Training(mode, folder) for mode in modes}
            for one in trainings.values():
                one.steps(WARM)
            turns = []
            for turn in range(TURNS):
                order = modes[turn % len(modes) :] + modes[: turn % len(modes)]
                turns.append({mode: trainings[mode].steps(STEPS)[COLD:] for mode in order[:: 1 if turn % 2 else -1]})
            for one in trainings.values():
                one.end()
        for mode in modes:
            steps[mode].append(statistics.median(ns for turn in turns for ns in turn[mode]))
            for ratios, middle in ((medians, statistics.median), (means, statistics.mean)):
                of_turns = (middle(turn[mode]) / middle(turn["without"]) for turn in turns)
                ratios[mode].append(statistics.median(of_turns))
    print(f"\ntraining step, 4-layer encoder, process CPU time ({ROUNDS} rounds of {TURNS} turns of {STEPS} steps)")
    print(f"{'':26}{'µs':>10}{'× bare, median step':>28}{'× bare, mean step':>28}")
    for mode in modes:
        print(f"{mode:26}{statistics.median(steps[mode]):10.1f}", end="")
        for ratios in (medians[mode], means[mode]):
            error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
            print(f"{statistics.median(ratios):13.3f} ({statistics.mean(ratios):.3f} ± {error:.3f})", end="")
        print()


def instructions():
    """Instructions of each mode, by callgrind, which starts to look when all is loaded."""
    if not (shutil.which("valgrind") and shutil.which("callgrind_control")):
        raise SystemExit("scripts/dev/bench --instructions: valgrind and its callgrind_control are needed")
    print("instructions per block alloc+free pair, by valgrind's callgrind; net of the bare pair in brackets")
    print(f"{'':26}{'module level':>22}{'20 frames deeper':>22}", flush=True)
    code = PAIRS.replace("FEW", str(FEW)).replace("MANY", str(MANY))
    bare = None
    for mode in [mode for mode in MODES if not ONLY or mode in ONLY.split(";")]:
        recorder, environment = MODES[mode]
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no", "--quiet"]
            # Names of functions are not needed, and take long to read.
            command = [ROOT / "scripts/simgpu", *valgrind, sys.executable, "-c", code, recorder, "callgrind_control"]
            done = subprocess.run(command, env={**os.environ, **environment}, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{mode}: {done.stderr[-2000:]}")
            totals = [
                int(re.search(r"^(?:totals|summary): (\d+)", (out.parent / f"out.{n}").read_text(), re.M)[1])
                for n in range(1, 7)
            ]
        # The first interval of each depth is there to warm up.
        each = [(totals[at + 2] - totals[at + 1]) / (MANY - FEW) for at in (0, 3)]
        bare = bare or each
        cells = (f"{e:12.0f}{f'({e - b:.0f})':>10}" for e, b in zip(each, bare))
        print(f"{mode:26}{''.join(cells)}", flush=True)


if __name__ == "__main__" and sys.argv[1:] == ["--instructions"]:
    instructions()
elif __name__ == "__main__" and sys.argv[1:] == ["--training"]:
    training()
elif __name__ == "__main__":
    table("block alloc+free pair, from the module level", 0, "ns", 1)
    table("block alloc+free pair, 20 Python frames deeper", 20, "ns", 1)
    training()
