"""Runs programs under the preload, on the simulated GPU or a real one: what the Python scripts share.

Knows where the build is and how a program gets an environment of its own. Reads and judges no report
(`reports`).
"""

import functools
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# LEAKTRACE_BUILD names the folder of another build, such as target/debug.
RELEASE = pathlib.Path(os.environ.get("LEAKTRACE_BUILD", pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"))
LEAKTRACE = RELEASE / "leaktrace"
LIBRARY = pathlib.Path(os.environ.get("LEAKTRACE_LIBRARY", RELEASE / "libleaktrace.so")).absolute()
SIMGPU = ROOT / "scripts/simgpu"
# LEAKTRACE_GPU=real: on this machine's own device, where LEAKTRACE_PYENV has PyTorch and what else the programs import.
REAL = os.environ.get("LEAKTRACE_GPU") == "real"
# What runs a program on the GPU: the command goes after it.
GPU = [] if REAL else [SIMGPU]
# The environment that scripts/python-env makes; LEAKTRACE_PYENV names another one.
PYENV = os.environ.get("LEAKTRACE_PYENV", pathlib.Path(os.environ.get("LEAKTRACE_TARGET", ROOT / "target")) / "pyenv")
PYTHON = pathlib.Path(PYENV).absolute() / "bin/python"
# PyTorch's allocators, and the setting that chooses each.
ALLOCATORS = {"native": None, "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
# A program that hangs is killed after so many seconds.
TIMEOUT = 600
# Makes every print of a line that starts with "step " end a step.
STEPS_BY_PRINT = ROOT / "tests/programs/steps"
# Settings of leaktrace, the simulated GPU, PyTorch and Python, which a measured program inherits none of.
SETTINGS = ("LEAKTRACE", "SIMGPU_", "PYTORCH_", "PYTHON", "CUDA_")


def build():
    """Builds the release programs and the simulated GPU, where they are out of date."""
    if REAL:
        return require_build()
    subprocess.run(["cargo", "build", "--quiet", "--release", "--locked"], cwd=ROOT, check=True)
    subprocess.run([SIMGPU, "true"], check=True)


@functools.cache
def python_with(torch):
    """Returns the interpreter of the environment with that version of PyTorch, which is made where it is missing."""
    made = subprocess.run([ROOT / "scripts/python-env", torch], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(made.stdout.strip()) / "bin/python"


def allocator(name):
    """Returns the settings under which PyTorch takes that allocator."""
    return {} if ALLOCATORS[name] is None else {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[name]}


def require_build():
    """Ends the script where there is no release build."""
    missing = [str(path) for path in (LIBRARY, LEAKTRACE) if not path.exists()]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} missing: cargo build --release")


def environment(traced=True, without=SETTINGS, **settings):
    """Returns this process's environment without its own settings (but for where the simulated GPU is), with the preload
    if `traced`, and `settings`."""
    keep = lambda name: name == "LEAKTRACE_TARGET" or not name.startswith(without)
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and keep(k)}
    clean.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", LEAKTRACE_QUIET="1")
    if traced:
        clean["LD_PRELOAD"] = str(LIBRARY)
    return {**clean, **settings}


def steps_by_print():
    """Returns the settings under which a program's printed lines end its steps, and nothing else does."""
    return {"LEAKTRACE_STEP": "api", "PYTHONPATH": str(STEPS_BY_PRINT), "SEEDS_STEPS": "1"}


def simulated_library_path():
    """Returns the LD_LIBRARY_PATH of programs on the simulated GPU."""
    done = subprocess.run(
        [SIMGPU, "printenv", "LD_LIBRARY_PATH"], env=environment(False), capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def compile_c(source, out, *flags):
    """Compiles cuda/programs/SOURCE to the file `out`."""
    command = ["cc", "-std=gnu11", "-O1", "-g", "-pthread", ROOT / "cuda/programs" / source, *flags, "-o", out]
    subprocess.run(command, check=True)
