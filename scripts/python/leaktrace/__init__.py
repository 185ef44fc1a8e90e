"""Optional annotations for a program that leaktrace records: steps, marks and reports on request.

Every function here does nothing in a program that is not traced, so the calls can stay where they are:

    import leaktrace

    for batch in loader:
        train(batch)
        leaktrace.step()

Nothing needs to be imported for leaktrace to work: it is started by ``leaktrace run -- python train.py``.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

__all__ = ["active", "dump", "mark", "step"]
__version__ = "@VERSION@"


def _function(name: str, *arguments: Any) -> Any:
    """Returns a function of the library that is preloaded into this process; ``None`` without one. It is called with the
    interpreter's lock held: it may search the heap for what keeps blocks."""
    try:
        function = getattr(ctypes.PyDLL(None), name)
    except (AttributeError, OSError):
        return None
    function.argtypes = arguments
    function.restype = None
    return function


_step = _function("leaktrace_step", ctypes.c_char_p)
_mark = _function("leaktrace_mark", ctypes.c_char_p)
_dump = _function("leaktrace_dump")
# Calls of `step` so far: the pytest plugin compares them with the steps in the recording.
_steps = 0


def _text(label: str) -> bytes:
    # A C string ends at the first NUL.
    return label.replace("\0", "").encode("utf-8", "replace")


def active() -> bool:
    """Whether this process is traced: memory is recorded from the first CUDA call on."""
    return _step is not None


def step(label: Optional[str] = None) -> None:
    """Ends a step. From the first call on, calls end the steps, and optimizer steps no longer do."""
    global _steps
    if _step is not None:
        _steps += 1
        _step(None if label is None else _text(label))


def mark(name: str) -> None:
    """Marks this moment by a name that the report and its timeline show."""
    if _mark is not None:
        _mark(_text(name))


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext leaktrace``: the magics ``%leaktrace`` and ``%%leaktrace``, and cells as steps."""
    from leaktrace import jupyter

    jupyter.load(shell)


def dump() -> None:
    """Writes the report so far beside the recording, as leaktrace.PID.txt."""
    if _dump is not None:
        _dump()
