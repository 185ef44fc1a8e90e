"""``pytest --leaktrace``: a test that leaves GPU memory behind fails, by the identity of blocks and never
by a total.

pytest is started again, once, with the library preloaded, on the simulated GPU where there is no real one.
A step ends before and after each test, so that the recording shows which test allocated a block. A test
that leaves blocks of its own behind is repeated: what only its first run left is a cache that filled (a
handle's workspace, parameters made on first use) and no leak; what every run leaves is one. What fixtures
of a wider scope allocate is never the test's."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Tuple

import pytest

from leaktrace import _program, active
from leaktrace._blocks import Judge, Recorder, Run

# The folder of the recordings, in the pytest that was started again and in its workers.
FOLDER = "LEAKTRACE_PYTEST"
REPEAT = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("leaktrace", "GPU memory leaks")
    group.addoption("--leaktrace", action="store_true", help="Fail tests that leave GPU memory behind.")
    group.addoption(
        "--leaktrace-repeat",
        type=int,
        metavar="N",
        help=f"Runs of a test that leaves GPU memory behind, its first one included (default: {REPEAT}). "
        "1: never repeated, and not judged by what only repetitions can show.",
    )
    group.addoption(
        "--leaktrace-simulate",
        choices=("auto", "always", "never"),
        default="auto",
        help="Use the simulated GPU: where there is no other (auto, the default), always or never.",
    )
    group.addoption("--leaktrace-keep", metavar="DIR", help="Keep the recordings there.")
    parser.addini("leaktrace_repeat", "Default of --leaktrace-repeat.", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "leaktrace(repeat=N): with --leaktrace, run this test N times and fail it if GPU memory accumulates over the runs; "
        "0: do not judge it.",
    )
    folder = os.environ.get(FOLDER)
    if config.getoption("--leaktrace") and folder:
        config.pluginmanager.register(Plugin(config, folder), "leaktrace-judge")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts pytest again before any module of the tests is imported."""
    if not getattr(early_config.known_args_namespace, "leaktrace", False):
        return
    if os.environ.get(FOLDER):
        if not active():
            raise pytest.UsageError("--leaktrace: libleaktrace.so was removed from LD_PRELOAD")
        return
    if list(early_config.invocation_params.args) != sys.argv[1:]:
        raise pytest.UsageError(
            "--leaktrace starts pytest again, which it cannot where a program calls pytest.main(): call pytest instead"
        )
    _restart_pytest(early_config)


def _restart_pytest(config: pytest.Config) -> NoReturn:
    options = config.known_args_namespace
    program = _program.path()
    if program is None:
        raise pytest.UsageError("--leaktrace: the program leaktrace is not installed")
    keep = options.leaktrace_keep
    if keep:
        os.makedirs(keep, exist_ok=True)
    folder = os.path.abspath(keep) if keep else tempfile.mkdtemp(prefix="leaktrace-")
    command = [program, "run", "--out", folder.replace("%", "%%") + "/%p.ltrace", "--step", "api"]
    simulate = options.leaktrace_simulate
    if simulate == "always" or (simulate == "auto" and not _has_gpu()):
        command.append("--simulate")
    command += ["--", sys.executable, *_pytest_arguments()]
    environment = {
        # The live set is read after each test; reports at steps would only take time.
        "LEAKTRACE_DUMP_EVERY": "1000000000",
        "LEAKTRACE_HOLDERS": "off",
        "LEAKTRACE_QUIET": "1",
        **os.environ,
        FOLDER: folder,
    }
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        # Otherwise the new process would write to the file that captures this one's output.
        capture.stop_global_capturing()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, command, environment)


def _pytest_arguments() -> List[str]:
    """Returns what followed the interpreter on the command line."""
    arguments = getattr(sys, "orig_argv", None)
    return list(arguments[1:]) if arguments else ["-m", "pytest", *sys.argv[1:]]


def _has_gpu() -> bool:
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


class Plugin:
    """Ends steps around the tests and judges them, in the process that runs them."""

    def __init__(self, config: pytest.Config, folder: str) -> None:
        self.folder = folder
        self.controls = not hasattr(config, "workerinput")
        self.keep = bool(config.getoption("--leaktrace-keep"))
        self.repeat = config.getoption("--leaktrace-repeat")
        if self.repeat is None:
            ini = str(config.getini("leaktrace_repeat") or REPEAT)
            if not ini.isdigit():
                raise pytest.UsageError(f"leaktrace_repeat = {ini} is not understood: it takes a number")
            self.repeat = int(ini)
        if self.repeat < 0:
            raise pytest.UsageError("--leaktrace-repeat takes a number of runs")
        self.recorder = Recorder(os.path.join(folder, f"{os.getpid()}.ltrace"))
        self.judged = 0
        self.leaks = 0
        self.notes: Dict[str, str] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        wider = fixturedef.scope != "function"
        if wider:
            self.recorder.pause()
        yield
        if wider:
            self.recorder.resume()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> Optional[bool]:
        marker = item.get_closest_marker("leaktrace")
        repeat, asked = self.repeat, False
        if marker is not None:
            repeat = marker.kwargs.get("repeat", marker.args[0] if marker.args else repeat)
            asked = True
        if not isinstance(repeat, int) or repeat < 0:
            raise pytest.UsageError(f"{item.nodeid}: leaktrace(repeat=…) takes a number of runs, 0 or more")
        if repeat == 0:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self.reports(item, nextitem, repeat, asked):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def reports(self, item: pytest.Item, nextitem: Optional[pytest.Item], repeat: int, asked: bool) -> List[Any]:
        """Runs a test as often as needed; returns the reports of its first run, or of a requested
        repetition that failed."""
        reports, run = self.run(item)
        verdict = None
        if all(r.passed and not hasattr(r, "wasxfail") for r in reports):
            judge = Judge(self.recorder, run)
            while len(judge.runs) < repeat and (asked or judge.left_something()):
                again, run = self.run(item)
                if not all(r.passed for r in again):
                    if asked:
                        reports = again
                    else:
                        judge.repetition_failed = True
                    break
                judge.add(run)
            verdict = judge.verdict()
        else:
            self.recorder.leaking_steps |= run.steps
        self.finish(item, nextitem, reports)
        passed = next((i for i, r in enumerate(reports) if r.when == "call" and r.passed), None)
        if verdict is not None and passed is not None:
            reports[passed].leaktrace = verdict.kind
            if verdict.fails:
                reports[passed] = self.failed(item, reports[passed], verdict.text(item.nodeid))
                reports[passed].leaktrace = "leak"
            elif verdict.kind != "clean":
                reports[passed].leaktrace = verdict.text(item.nodeid)
        return reports

    def run(self, item: Any) -> Tuple[List[Any], Run]:
        """Runs a test once, with its own fixtures; those of a wider scope stay."""
        from _pytest.runner import call_and_report

        self.recorder.begin()
        if hasattr(item, "_request") and not item._request:
            item._initrequest()
        reports = [call_and_report(item, "setup", log=False)]
        only = item.config.getoption("setuponly", False)
        if reports[0].passed and not only:
            reports.append(call_and_report(item, "call", log=False))
        reports.append(call_and_report(item, "teardown", log=False, nextitem=item.parent))
        if hasattr(item, "_request"):
            item._request = False
            item.funcargs = None
        return reports, self.recorder.end(item.nodeid)

    @staticmethod
    def finish(item: pytest.Item, nextitem: Optional[pytest.Item], reports: List[Any]) -> None:
        """Tears down the fixtures of a wider scope that no later test uses."""

        def tear_down() -> None:
            item.session._setupstate.teardown_exact(nextitem)

        call = pytest.CallInfo.from_call(tear_down, when="teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt))
        if call.excinfo is not None and reports[-1].passed:
            reports[-1] = item.ihook.pytest_runtest_makereport(item=item, call=call)

    @staticmethod
    def failed(item: pytest.Item, passed: Any, text: str) -> Any:
        def fail() -> NoReturn:
            pytest.fail(text, pytrace=False)

        call = pytest.CallInfo.from_call(fail, when="call")
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        report.sections = list(passed.sections)
        report.duration, report.start, report.stop = passed.duration, passed.start, passed.stop
        return report

    # The hooks below run in the process that the user sees, which with pytest-xdist does not run the tests.

    def pytest_runtest_logreport(self, report: Any) -> None:
        verdict = getattr(report, "leaktrace", None)
        if verdict is None or report.when != "call":
            return
        self.judged += 1
        if verdict == "leak":
            self.leaks += 1
        elif verdict != "clean":
            self.notes[report.nodeid] = verdict

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.controls:
            return
        on = "the simulated GPU" if "/simgpu-" in os.environ.get("LD_LIBRARY_PATH", "") else "this machine's GPU"
        terminalreporter.section("leaktrace")
        for note in self.notes.values():
            if terminalreporter.verbosity > 0 or note.endswith("not known"):
                terminalreporter.line(note)
        leaks = {0: "none of them leaks", 1: "1 of them leaks"}.get(self.leaks, f"{self.leaks} of them leak")
        terminalreporter.line(f"{self.judged} passing tests judged on {on}: {leaks}")
        if self.keep or self.leaks:
            terminalreporter.line(f"recordings: {self.folder} (leaktrace report FILE)")

    def pytest_unconfigure(self) -> None:
        if self.controls and not self.keep and not self.leaks:
            # This process still writes its recording: removing its name does not disturb that.
            shutil.rmtree(self.folder, ignore_errors=True)
