"""Reads reports as JSON, and compares them with what is true. Runs nothing but `leaktrace report`."""

import json
import subprocess

from programs import LEAKTRACE, TIMEOUT

# The kinds of findings that say of a program that it loses memory.
LOSING = {"leak", "growing", "pending-gc", "residue"}


class Different(Exception):
    """Raised where a report differs from what is true."""


def same(what, got, wanted):
    if got != wanted:
        raise Different(f"{what}: {got!r}, not {wanted!r}")


def read(recording, *options):
    """Returns `leaktrace report RECORDING --format json OPTIONS`."""
    command = [LEAKTRACE, "report", recording, "--format", "json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT)
    if done.returncode:
        raise Different(f"leaktrace report: {done.stderr.decode(errors='replace').strip()}")
    return json.loads(done.stdout)


def only_recording(folder):
    """Returns the recording in a folder, where exactly one is expected."""
    found = sorted(folder.glob("*.ltrace"))
    same("recordings", len(found), 1)
    return found[0]


def driver_live(report):
    """Returns the driver's bytes alive per device; -1 is pinned host memory, as in the simulated GPU's log."""
    live = {device["index"]: device["driver_live_bytes"] for device in report["devices"]}
    live[-1] = report.get("host_live_bytes", report["host_bytes"])
    return {device: size for device, size in live.items() if size}


def check_complete(report, gaps=()):
    """Checks that nothing was lost, but for some gaps that are told, and nothing contradicts itself."""
    coverage = report["coverage"]
    for figure in ("frees_without_allocation", "dropped_events", "allocations_without_free"):
        same(f"coverage.{figure}", coverage[figure], 0)
    same("coverage.gaps", coverage["gaps"], list(gaps))
    if coverage["ledger_matches_allocator"] is False:
        raise Different(f"live bytes differ from the allocator's own total: {report['warnings']}")


def location(frame):
    """Returns a frame's `file:line` without the folders."""
    return f"{frame['file'].rsplit('/', 1)[-1]}:{frame['line']}"
