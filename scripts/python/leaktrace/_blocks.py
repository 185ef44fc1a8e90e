"""Whose the blocks on the device are, and whether what a test left is a leak. Knows the recording, not pytest."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import subprocess
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

import leaktrace
from leaktrace import _program


class Place(NamedTuple):
    """A line that allocated."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        if not self.file:
            return "a place that is not known"
        below = os.path.relpath(self.file)
        file = self.file if below.startswith("..") else below
        return f"{file}:{self.line} {self.function}"


class Row(NamedTuple):
    """What one line has alive of what it made in one step."""

    birth: int
    bytes: int
    blocks: int
    place: Place


@dataclasses.dataclass
class Run:
    """One run of a test: the steps that are its own, and what was left of them when it ended."""

    steps: Set[int] = dataclasses.field(default_factory=set)
    left: List[Row] = dataclasses.field(default_factory=list)


class Recorder:
    """Draws the boundaries of the tests in the recording of this process, and looks at it."""

    def __init__(self, recording: str) -> None:
        self.recording = recording
        self.steps = 0
        # Of the current run: between which calls of `step` it makes things of its own, and since when.
        self.own: List[Tuple[int, int]] = []
        self.since = 0
        self.outside = 0
        self.inside = False
        # Steps of tests that leak or did not pass: what they left is nobody's state.
        self.blamed: Set[int] = set()

    def begin(self) -> None:
        leaktrace.step()
        self.own, self.since, self.outside, self.inside = [], leaktrace._steps, 0, True

    def leave_test(self) -> None:
        """What comes is made for more than this test."""
        if self.inside:
            if self.outside == 0:
                leaktrace.step()
                self.own.append((self.since, leaktrace._steps))
            self.outside += 1

    def enter_test(self) -> None:
        if self.inside:
            self.outside -= 1
            if self.outside == 0:
                leaktrace.step()
                self.since = leaktrace._steps

    def end(self, label: str) -> Run:
        leaktrace.step(label)
        self.own.append((self.since, leaktrace._steps))
        self.inside = False
        run = Run()
        rows = self.look()
        if rows is None:
            return run
        # The recording counts from where the program first used the GPU.
        shift = self.steps - leaktrace._steps
        run.steps = {step + shift for begin, end in self.own for step in range(begin + 1, end + 1)}
        if any(row.birth in run.steps for row in rows):
            # Garbage in cycles waits for the collector; it is not kept by anything.
            gc.collect()
            rows = self.look() or []
        run.left = [row for row in rows if row.birth in run.steps]
        return run

    def look(self) -> Optional[List[Row]]:
        """All that is alive on devices; ``None`` while the GPU was not used."""
        if not os.path.exists(self.recording):
            return None
        answer = alive(self.recording)
        self.steps = int(answer["steps"])
        return [_row(row) for row in answer["rows"]]


def alive(recording: str) -> Dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    told = subprocess.run(
        [str(_program.path()), "live-set", recording], stdout=subprocess.PIPE, env=environment, check=True
    )
    answer: Dict[str, Any] = json.loads(told.stdout)
    return answer


def _row(row: Dict[str, Any]) -> Row:
    at = row["allocated_at"] or {}
    place = Place(at.get("file") or "", at.get("line") or 0, at.get("function") or "")
    return Row(row["step"], row["bytes"], row["blocks"], place)


@dataclasses.dataclass
class Verdict:
    """``clean``; ``cache``: only the first run left something; ``leak``: the runs gather it; ``residue``: each run
    leaves something that the next one replaces; ``state``: the same, but there is something it may belong to."""

    kind: str
    runs: int = 1
    rows: List[Row] = dataclasses.field(default_factory=list)

    @property
    def fails(self) -> bool:
        return self.kind in ("leak", "residue")

    def text(self, name: str) -> str:
        size, blocks = sum(row.bytes for row in self.rows), sum(row.blocks for row in self.rows)
        total = amount(size / self.runs, blocks / self.runs)
        if self.kind == "cache":
            return f"{name} left {total} behind at first use, and nothing when it was run again: no leak"
        if self.kind == "untold":
            return (
                f"{name} left {total} behind; it did not pass when it was run again, so whether it leaks is not known"
            )
        if self.kind == "once":
            return f"{name} left {total} behind; it was not run again, so whether it leaks is not known"
        said = {
            "leak": f"leaks GPU memory: {total} more with every run, never freed",
            "residue": f"leaves GPU memory behind: {total} of each run, until the next one replaces it",
            "state": f"{name} leaves {total} of each run, until the next one replaces it: no leak",
        }[self.kind]
        lines = [f"  {place}: {amount(size, blocks)} per run" for place, size, blocks in by_place(self.rows, self.runs)]
        return "\n".join([said, *lines])


class Judge:
    """Collects the runs of a test."""

    def __init__(self, recorder: Recorder, first: Run) -> None:
        self.recorder = recorder
        self.runs = [first]
        self.broken = False

    def add(self, run: Run) -> None:
        self.runs.append(run)

    def left_something(self) -> bool:
        """Whether another run can tell more: this far, each one left something."""
        return bool(self.runs[-1].left)

    def verdict(self) -> Verdict:
        verdict = self._verdict()
        if verdict.fails:
            self.recorder.blamed.update(*(run.steps for run in self.runs))
        return verdict

    def _verdict(self) -> Verdict:
        first, later = self.runs[0], self.runs[1:]
        if not any(run.left for run in self.runs):
            return Verdict("clean")
        if not later:
            return Verdict("untold" if self.broken else "once", 1, first.left)
        rows = self.recorder.look() or []
        left = [sizes(run.left) for run in later]
        kept = [sizes(row for row in rows if row.birth in run.steps) for run in later]
        early = sizes(row for row in rows if row.birth in first.steps)
        leaks: Set[Place] = set()
        replaced: Set[Place] = set()
        for place in set().union(*left):
            leaving = [i for i, run in enumerate(left) if place in run]
            # What the earliest of them left is there to this day: nothing took its place. A bounded cache lets go of it.
            stays = 2 * kept[leaving[0]].get(place, 0) > left[leaving[0]][place]
            gathers = sum(place in run for run in kept) + (place in early if len(later) == 1 else 0)
            if stays and gathers > 1:
                leaks.add(place)
            elif not stays and len(leaving) == len(later) > 1:
                replaced.add(place)
        for kind, places in (("leak", leaks), ("residue", replaced)):
            if places:
                of = [row for run in later for row in run.left if row.place in places]
                runs = sum(any(row.place in places for row in run.left) for run in later)
                if kind == "residue" and self._may_belong(rows, places):
                    kind = "state"
                return Verdict(kind, runs, of)
        return Verdict("untold" if self.broken else "cache", 1, first.left or next(r.left for r in later if r.left))

    def _may_belong(self, rows: List[Row], replaced: Set[Place]) -> bool:
        """Whether something older is alive that what each run replaces may belong to: a module with its gradients."""
        begins = min((min(run.steps) for run in self.runs[1:] if run.steps), default=0)
        blamed = self.recorder.blamed
        return any(r.birth < begins and r.place not in replaced and r.birth not in blamed for r in rows)


def sizes(rows: Iterable[Row]) -> Dict[Place, int]:
    sums: Dict[Place, int] = {}
    for row in rows:
        sums[row.place] = sums.get(row.place, 0) + row.bytes
    return sums


def by_place(rows: List[Row], runs: int) -> List[Tuple[Place, float, float]]:
    sums: Dict[Place, List[int]] = {}
    for row in rows:
        of = sums.setdefault(row.place, [0, 0])
        of[0] += row.bytes
        of[1] += row.blocks
    ranked = sorted(sums.items(), key=lambda item: -item[1][0])
    return [(place, size / runs, blocks / runs) for place, (size, blocks) in ranked[:10]]


def amount(size: float, blocks: float) -> str:
    return f"{bytes_text(size)} ({blocks:g} block{'s' if blocks != 1 else ''})"


def bytes_text(size: float) -> str:
    exact = f"{size:,.0f} B"
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}, {exact}"
    return exact
