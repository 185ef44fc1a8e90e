"""The framework that the programs are written for: its tables, and what runs them. Chosen by SYNTHESIS_FRAMEWORK before
anything else is imported; PyTorch by default."""

import os
import pathlib
import subprocess

import programs

NAME = os.environ.get("SYNTHESIS_FRAMEWORK", "torch")

if NAME == "jax":
    from synthesis import tables_jax as tables
else:
    from synthesis import tables

__all__ = ["NAME", "command", "settings", "tables"]


def command():
    """Returns what runs a program, or the server of programs, before its path."""
    if NAME == "jax" and not programs.REAL:
        return [environment_of_jax() / "bin/python"]
    return [*programs.GPU, programs.PYTHON]


def settings():
    """Returns the settings of a program's environment."""
    if NAME != "jax":
        return {}
    if programs.REAL:
        # Many programs share the device.
        return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    plugin = next(environment_of_jax().glob("lib/python3*/site-packages/lammps_jax_pjrt_cpu/*.so"))
    return {"PJRT_NAMES_AND_LIBRARY_PATHS": f"processor:{plugin}", "JAX_PLATFORMS": "processor"}


_MADE = []


def environment_of_jax():
    if not _MADE:
        made = subprocess.run([programs.ROOT / "scripts/dev/jax-env"], check=True, stdout=subprocess.PIPE, text=True)
        _MADE.append(pathlib.Path(made.stdout.strip()))
    return _MADE[0]
