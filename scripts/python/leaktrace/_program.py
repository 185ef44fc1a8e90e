"""The program ``leaktrace``, as the wheel brings it; started in place of this process."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn, Optional

_BROUGHT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "leaktrace")


def path() -> Optional[str]:
    """Where it is; without one of our own, the one that is installed."""
    return _BROUGHT if os.access(_BROUGHT, os.X_OK) else shutil.which("leaktrace")


def main() -> NoReturn:
    program = path()
    if program is None:
        sys.exit(f"leaktrace: cannot find the program: {_BROUGHT} is missing; install the package again")
    # Where a script is to be run, it is this very interpreter that runs it.
    os.environ["LEAKTRACE_PYTHON"] = sys.executable
    os.execv(program, ["leaktrace", *sys.argv[1:]])
