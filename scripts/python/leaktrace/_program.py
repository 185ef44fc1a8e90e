"""Finds the program ``leaktrace`` that the wheel contains, and runs it in place of this process."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn, Optional

_BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "leaktrace")


def path() -> Optional[str]:
    """Returns the path of the wheel's program; where it has none, of the one on PATH."""
    return _BUNDLED if os.access(_BUNDLED, os.X_OK) else shutil.which("leaktrace")


def main() -> NoReturn:
    program = path()
    if program is None:
        sys.exit(f"leaktrace: cannot find the program: {_BUNDLED} is missing; install the package again")
    # `leaktrace run SCRIPT.py` runs the script by this interpreter.
    os.environ["LEAKTRACE_PYTHON"] = sys.executable
    os.execv(program, ["leaktrace", *sys.argv[1:]])
