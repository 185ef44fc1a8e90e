"""The benchmark behind scripts/bench. Prints nanoseconds per `x = torch.empty(1024, device="cuda"); del x`.

Each mode runs in processes of its own, the modes interleaved over several rounds, so that a change of the machine's pace
meets all of them; within a process the best of many repeats counts. The bars are ratios of *net* costs: what a mode adds
to the bare pair. Needs nothing but the project's environment.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = pathlib.Path(os.environ.get("LIBRARY", ROOT / "target/release/libleaktrace.so"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))

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

def train():
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data, best = torch.zeros(4, 16, 64, device="cuda"), []
    for _ in range(60):
        start = time.process_time_ns()
        optimizer.zero_grad(); model(data).sum().backward(); optimizer.step()
        best.append(time.process_time_ns() - start)
    return sorted(best)[len(best) // 2]

empty(1024, device="cuda")
print(json.dumps(train() if depth < 0 else at(depth)))
"""

MODES = {
    "without": ("off", {}),
    "leaktrace": ("off", {"LD_PRELOAD": str(LIBRARY), "LEAKTRACE_QUIET": "1"}),
    "leaktrace, stacks=python": ("off", {"LD_PRELOAD": str(LIBRARY), "LEAKTRACE_QUIET": "1", "LEAKTRACE_STACKS": "python"}),
    "leaktrace, stacks off": ("off", {"LD_PRELOAD": str(LIBRARY), "LEAKTRACE_QUIET": "1", "LEAKTRACE_STACKS": "off"}),
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
        for _ in range(ROUNDS):
            for mode in MODES:
                samples[mode].append(run(mode, depth, folder))
    figures = {mode: sorted(values)[len(values) // 2] / divide for mode, values in samples.items()}
    bare = figures["without"]
    ours = figures["leaktrace"] - bare
    print(f"\n{title} ({ROUNDS} rounds, median)")
    print(f"{'':26}{unit:>10}{'net':>10}{'× bare':>10}{'ours / its net':>18}")
    for mode, figure in figures.items():
        net = figure - bare
        ratio = f"{ours / net:18.2f}" if mode.startswith("recorder") and net > 0 else ""
        print(f"{mode:26}{figure:10.1f}{net:10.1f}{figure / bare:10.3f}{ratio}")


if __name__ == "__main__":
    table("block alloc+free pair, from the module level", 0, "ns", 1)
    table("block alloc+free pair, 20 Python frames deeper", 20, "ns", 1)
    table("training step, 4-layer encoder, process CPU time", -1, "µs", 1000)
