"""Runs a program twice: counted by the framework itself without leaktrace, and under leaktrace.

Each goes to a process that has imported the framework and forks (`server`), since the import takes longer than the
program; or (`fresh`) to a new process. Knows nothing of plans.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import programs
import reports
from synthesis import framework

SERVER = pathlib.Path(__file__).with_name("server.py")
SECONDS = 120


class Failed(Exception):
    """Raised where a run gives nothing to judge."""


class Server:
    """A process that forks for each program."""

    def __init__(self, traced):
        self.traced, self.process = traced, None

    def start(self):
        self.process = subprocess.Popen(
            [*framework.command(), SERVER, framework.NAME], text=True,
            env=programs.environment(self.traced, **framework.settings()),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )

    def run(self, program, folder, steps=0, out=None):
        if self.process is None or self.process.poll() is not None:
            self.start()
        task = {"program": str(program), "folder": str(folder), "steps": steps, "out": str(out), "seconds": SECONDS}
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            raise Failed("the server of programs ended")
        return json.loads(said)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


class Machine:
    """Where programs run."""

    def __init__(self, fresh=False):
        self.fresh = fresh
        self.plain, self.traced = Server(False), Server(True)

    def close(self):
        self.plain.close()
        self.traced.close()

    def counted(self, source, steps):
        """Returns what the framework knows of a counted program."""
        with tempfile.TemporaryDirectory() as folder:
            program, out = pathlib.Path(folder, "program.py"), pathlib.Path(folder, "counted.json")
            program.write_text(source)
            status = self.plain.run(program, folder, steps, out)
            if not out.exists():
                said = pathlib.Path(folder, "stderr").read_text().strip().split("\n")[-1]
                raise Failed(f"the program does not run: status {status}, {said}")
            return json.loads(out.read_text())

    def judged(self, source, keep=None):
        """Returns the exit status of a program under leaktrace, and its report."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            program = folder / "program.py"
            program.write_text(source)
            if self.fresh:
                with open(folder / "stderr", "w") as errors:
                    status = subprocess.run(
                        [*framework.command(), "program.py"], cwd=folder, env=programs.environment(**framework.settings()),
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, timeout=SECONDS,
                    ).returncode
            else:
                status = self.traced.run(program, folder)
            found = sorted(folder.glob("*.ltrace"))
            if not found:
                raise Failed(f"no recording; status {status}, {(folder / 'stderr').read_text()[-200:]}")
            try:
                report = reports.read(max(found, key=os.path.getsize))
            except reports.Different as different:
                raise Failed(str(different)) from None
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / "program.py").write_text(source)
                (keep / "report.json").write_text(json.dumps(report))
                (keep / "stderr").write_text((folder / "stderr").read_text(errors="replace"))
            return status, report
