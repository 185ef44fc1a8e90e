"""leaktrace in a notebook: ``%load_ext leaktrace``, then ``%leaktrace`` and ``%%leaktrace``. The kernel that `leaktrace
jupyter install` adds has it loaded already."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

import leaktrace
from leaktrace import _program
from leaktrace._blocks import Line, Row, _row, amount, live_set
from leaktrace._holders import holders

_cell = leaktrace._function("leaktrace_cell", leaktrace.ctypes.c_char_p)
_NOT_TRACED = "this kernel is not traced: choose the kernel that `leaktrace jupyter install` adds"


def load(shell: Any) -> None:
    """Makes the cells of a shell its steps, names them, and registers the magics."""
    shell.register_magic_function(lambda line: _report(line), "line", "leaktrace")
    shell.register_magic_function(lambda line, cell: _left_behind(shell, cell), "cell", "leaktrace")
    # Both kinds share a name.
    shell.magics_manager.magics["line"]["leaktrace"] = lambda line: _report(line)
    if _cell is None:
        return
    # A cell is named by its number, as people know it, and not by a file that nobody made. Run again, it is the same lines.
    names: Dict[str, str] = {}
    shell.compile.get_code_name = lambda raw, transformed, number: names.setdefault(transformed, f"Cell[{number}]")
    shell.events.register("post_run_cell", lambda result: _cell(f"Cell[{shell.execution_count}]".encode()))


def _recording() -> Optional[str]:
    """Returns the recording of this process; ``None`` before the first use of the GPU."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[1] == "rw-s" and fields[5].startswith("/") and not fields[5].startswith("/dev/"):
                try:
                    with open(fields[5], "rb") as file:
                        if file.read(6) == b"LTRACE":
                            return fields[5]
                except OSError:
                    continue
    return None


def _missing() -> Optional[str]:
    if _cell is None:
        return _NOT_TRACED
    if _program.path() is None:
        return "the program leaktrace is not installed"
    return None if _recording() else "nothing is recorded yet: no cell has used the GPU"


def _report(line: str) -> None:
    """Shows the report of this kernel so far; what follows is given to `leaktrace report`."""
    missing = _missing()
    if missing:
        print(f"leaktrace: {missing}")
        return
    leaktrace.dump()
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [str(_program.path()), "report", str(_recording()), "--color", "never", *line.split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False)
    print(done.stdout.decode("utf-8", "replace"), end="")


def _live() -> Dict[Tuple[int, Line], Row]:
    recording = _recording()
    if recording is None:
        return {}
    rows: Dict[Tuple[int, Line], Row] = {}
    for row in map(_row, live_set(recording)["rows"]):
        known = rows.get((row.step, row.line))
        if known is not None:
            row = Row(row.step, known.bytes + row.bytes, known.blocks + row.blocks, row.line, known.addresses + row.addresses)
        rows[row.step, row.line] = row
    return rows


def _left_behind(shell: Any, cell: str) -> None:
    """Runs a cell, and says what it left on the device."""
    if _cell is None or _program.path() is None:
        print(f"leaktrace: {_missing()}")
        shell.run_cell(cell)
        return
    before = _live()
    result = shell.run_cell(cell)
    _cell(None)
    lines: List[str] = []
    size = blocks = 0
    for key, row in _live().items():
        was = before.get(key)
        more = row.bytes - (was.bytes if was else 0), row.blocks - (was.blocks if was else 0)
        if more[0] <= 0:
            continue
        size, blocks = size + more[0], blocks + more[1]
        ways = holders(set(row.addresses) - set(was.addresses if was else ()))
        held = f", held by {' and '.join(f'`{way}`' for way in ways)}" if ways else ""
        lines.append(f"  {_named(row.line)}: {amount(*more)}{held}")
    sys.stdout.flush()
    if not lines:
        print("leaktrace: this cell left nothing on the device")
    else:
        print("\n".join([f"leaktrace: this cell left {amount(size, blocks)} on the device", *lines]))
    if result.error_in_exec is None and result.error_before_exec is None:
        return


def _named(line: Line) -> str:
    """Names a line of a cell as reports do: ``Cell[12] line 3 train``."""
    return f"{line.file} line {line.line} {line.function}" if line.file.startswith("Cell[") else str(line)
