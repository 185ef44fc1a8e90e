"""Decides whether the blocks that a test left on the device are a leak. Knows the recording, not pytest."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import subprocess
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

import leaktrace
from leaktrace import _program
from leaktrace._holders import holders


class Line(NamedTuple):
    """A line of the program that allocates."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        if not self.file:
            return "an unknown line"
        below = os.path.relpath(self.file)
        file = self.file if below.startswith("..") else below
        return f"{file}:{self.line} {self.function}"


class Row(NamedTuple):
    """The live blocks that one line allocated in one step."""

    step: int
    bytes: int
    blocks: int
    line: Line
    # Where some of them begin.
    addresses: Tuple[int, ...] = ()


@dataclasses.dataclass
class Run:
    """One run of a test: its own steps, and the blocks allocated in them that were alive when it ended."""

    steps: Set[int] = dataclasses.field(default_factory=set)
    left: List[Row] = dataclasses.field(default_factory=list)


class Recorder:
    """Ends steps around each test in the recording of this process, and reads what is alive in it."""

    def __init__(self, recording: str) -> None:
        self.recording = recording
        self.steps = 0
        # The ranges of calls of `step` that are the current run's own, and where the open one began.
        self.own: List[Tuple[int, int]] = []
        self.since = 0
        # How many fixtures of a wider scope are being set up inside each other.
        self.outside = 0
        self.in_test = False
        # Steps of tests that leak or did not pass: what they left is not the state of a later test.
        self.leaking_steps: Set[int] = set()

    def begin(self) -> None:
        leaktrace.step()
        self.own, self.since, self.outside, self.in_test = [], leaktrace._steps, 0, True

    def pause(self) -> None:
        """Takes what is allocated from here on as made for more than this test."""
        if self.in_test:
            if self.outside == 0:
                leaktrace.step()
                self.own.append((self.since, leaktrace._steps))
            self.outside += 1

    def resume(self) -> None:
        if self.in_test:
            self.outside -= 1
            if self.outside == 0:
                leaktrace.step()
                self.since = leaktrace._steps

    def end(self, label: str) -> Run:
        leaktrace.step(label)
        self.own.append((self.since, leaktrace._steps))
        self.in_test = False
        run = Run()
        rows = self.live_rows()
        if rows is None:
            return run
        # The recording counts steps from the first use of the GPU.
        shift = self.steps - leaktrace._steps
        run.steps = {step + shift for begin, end in self.own for step in range(begin + 1, end + 1)}
        if any(row.step in run.steps for row in rows):
            # Garbage in reference cycles is held by nothing: it waits for the collector.
            gc.collect()
            rows = self.live_rows() or []
        run.left = [row for row in rows if row.step in run.steps]
        return run

    def live_rows(self) -> Optional[List[Row]]:
        """Returns what is alive on all devices; ``None`` before the first use of the GPU."""
        if not os.path.exists(self.recording):
            return None
        answer = live_set(self.recording)
        self.steps = int(answer["steps"])
        return [_row(row) for row in answer["rows"]]


def live_set(recording: str) -> Dict[str, Any]:
    """Returns what ``leaktrace live-set`` prints of a recording."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [str(_program.path()), "live-set", recording], stdout=subprocess.PIPE, env=environment, check=True
    )
    answer: Dict[str, Any] = json.loads(done.stdout)
    return answer


def _row(row: Dict[str, Any]) -> Row:
    at = row["allocated_at"] or {}
    line = Line(at.get("file") or "", at.get("line") or 0, at.get("function") or "")
    return Row(row["step"], row["bytes"], row["blocks"], line, tuple(row.get("addresses", ())))


@dataclasses.dataclass
class Verdict:
    """What the runs of a test show. ``clean``: nothing was left. ``cache``: only the first run left
    something. ``leak``: it accumulates from run to run. ``residue``: each run leaves something that the
    next one replaces. ``state``: so does this one, but an older object is alive that it may belong to.
    ``once``: there was one run only. ``unknown``: a repetition did not pass."""

    kind: str
    runs: int = 1
    rows: List[Row] = dataclasses.field(default_factory=list)
    # What keeps the blocks of each line, as far as that was found.
    held: Dict[Line, List[str]] = dataclasses.field(default_factory=dict)

    @property
    def fails(self) -> bool:
        return self.kind in ("leak", "residue")

    def text(self, name: str) -> str:
        size, blocks = sum(row.bytes for row in self.rows), sum(row.blocks for row in self.rows)
        total = amount(size / self.runs, blocks / self.runs)
        if self.kind == "cache":
            return f"{name} left {total} behind at first use, and nothing when it was run again: no leak"
        if self.kind == "unknown":
            return (
                f"{name} left {total} behind; it did not pass when it was run again, so whether it leaks is not known"
            )
        if self.kind == "once":
            return f"{name} left {total} behind; it was not run again, so whether it leaks is not known"
        summary = {
            "leak": f"leaks GPU memory: {total} more with every run, never freed",
            "residue": f"leaves GPU memory behind: {total} of each run, until the next one replaces it",
            "state": f"{name} leaves {total} of each run, until the next one replaces it: no leak",
        }[self.kind]
        lines = [
            f"  {line}: {amount(size, blocks)} per run{self.held_by(line)}" for line, size, blocks in by_line(self.rows, self.runs)
        ]
        return "\n".join([summary, *lines])


    def held_by(self, line: Line) -> str:
        ways = self.held.get(line, [])
        return f", held by {' and '.join(f'`{way}`' for way in ways)}" if ways else ""


class Judge:
    """Collects the runs of a test and decides on them."""

    def __init__(self, recorder: Recorder, first: Run) -> None:
        self.recorder = recorder
        self.runs = [first]
        self.repetition_failed = False

    def add(self, run: Run) -> None:
        self.runs.append(run)

    def left_something(self) -> bool:
        """Whether another run can show more: the last one left something."""
        return bool(self.runs[-1].left)

    def verdict(self) -> Verdict:
        verdict = self._verdict()
        if verdict.fails:
            self.recorder.leaking_steps.update(*(run.steps for run in self.runs))
        return verdict

    def _verdict(self) -> Verdict:
        first, later = self.runs[0], self.runs[1:]
        if not any(run.left for run in self.runs):
            return Verdict("clean")
        if not later:
            return Verdict("unknown" if self.repetition_failed else "once", 1, first.left)
        rows = self.recorder.live_rows() or []
        left = [sizes(run.left) for run in later]
        kept = [sizes(row for row in rows if row.step in run.steps) for run in later]
        early = sizes(row for row in rows if row.step in first.steps)
        leaks: Set[Line] = set()
        replaced: Set[Line] = set()
        for line in set().union(*left):
            leaving = [i for i, run in enumerate(left) if line in run]
            # Blocks of the earliest run that left any are still alive: nothing replaced them. A bounded cache
            # would have freed them.
            stays = 2 * kept[leaving[0]].get(line, 0) > left[leaving[0]][line]
            runs_alive = sum(line in run for run in kept) + (line in early if len(later) == 1 else 0)
            if stays and runs_alive > 1:
                leaks.add(line)
            elif not stays and len(leaving) == len(later) > 1:
                replaced.add(line)
        for kind, lines in (("leak", leaks), ("residue", replaced)):
            if lines:
                of = [row for run in later for row in run.left if row.line in lines]
                runs = sum(any(row.line in lines for row in run.left) for run in later)
                if kind == "residue" and self._may_be_state(rows, lines):
                    kind = "state"
                return Verdict(kind, runs, of, self._held(rows, lines))
        return Verdict("unknown" if self.repetition_failed else "cache", 1, first.left or next(r.left for r in later if r.left))

    def _held(self, rows: List[Row], lines: Set[Line]) -> Dict[Line, List[str]]:
        """Returns what keeps the blocks of these runs that are alive."""
        steps = set().union(*(run.steps for run in self.runs))
        addresses: Dict[Line, List[int]] = {}
        for row in rows:
            if row.line in lines and row.step in steps:
                addresses.setdefault(row.line, []).extend(row.addresses)
        return {line: holders(of) for line, of in addresses.items()}

    def _may_be_state(self, rows: List[Row], replaced: Set[Line]) -> bool:
        """Whether an older object is alive that the replaced blocks may belong to, as gradients do to a
        module."""
        begins = min((min(run.steps) for run in self.runs[1:] if run.steps), default=0)
        leaking = self.recorder.leaking_steps
        return any(r.step < begins and r.line not in replaced and r.step not in leaking for r in rows)


def sizes(rows: Iterable[Row]) -> Dict[Line, int]:
    sums: Dict[Line, int] = {}
    for row in rows:
        sums[row.line] = sums.get(row.line, 0) + row.bytes
    return sums


def by_line(rows: List[Row], runs: int) -> List[Tuple[Line, float, float]]:
    sums: Dict[Line, List[int]] = {}
    for row in rows:
        of = sums.setdefault(row.line, [0, 0])
        of[0] += row.bytes
        of[1] += row.blocks
    ranked = sorted(sums.items(), key=lambda item: -item[1][0])
    return [(line, size / runs, blocks / runs) for line, (size, blocks) in ranked[:10]]


def amount(size: float, blocks: float) -> str:
    return f"{bytes_text(size)} ({blocks:g} block{'s' if blocks != 1 else ''})"


def bytes_text(size: float) -> str:
    exact = f"{size:,.0f} B"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}, {exact}"
    return exact
