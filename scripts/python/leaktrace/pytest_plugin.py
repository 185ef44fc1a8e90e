"""``pytest --leaktrace``: a test that leaves GPU memory behind fails, by the identity of blocks and never by a total.

pytest is started again, once, with the library preloaded, on the simulated GPU where there is no real one. Around each
test stand boundaries, so that the recording knows of every block which test made it. A test that leaves blocks of its
own behind is repeated: what only its first run left is a cache that filled (a handle's work space, parameters made on
first use) and no leak; what every run leaves is one. What fixtures of a wider scope make is never the test's.
"""

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
        "1: never repeated, and not judged by what only repetitions can tell.",
    )
    group.addoption(
        "--leaktrace-simulate",
        choices=("auto", "always", "never"),
        default="auto",
        help="Use the simulated GPU: where there is no other (auto, the default), always or never.",
    )
    group.addoption("--leaktrace-keep", metavar="DIR", help="Keep the recordings there.")
    parser.addini("leaktrace_repeat", "The same as --leaktrace-repeat.", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "leaktrace(repeat=N): with --leaktrace, run this test N times and fail it if the runs gather GPU memory; "
        "0: do not judge it.",
    )
    folder = os.environ.get(FOLDER)
    if config.getoption("--leaktrace") and folder:
        config.pluginmanager.register(Plugin(config, folder), "leaktrace-judge")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of the tests is imported."""
    if not getattr(early_config.known_args_namespace, "leaktrace", False):
        return
    if os.environ.get(FOLDER):
        if not active():
            raise pytest.UsageError("--leaktrace: something took libleaktrace.so out of LD_PRELOAD")
        return
    if list(early_config.invocation_params.args) != sys.argv[1:]:
        raise pytest.UsageError(
            "--leaktrace starts pytest again, which it cannot where a program calls pytest.main(): call pytest instead"
        )
    _start_again(early_config)


def _start_again(config: pytest.Config) -> NoReturn:
    options = config.known_args_namespace
    program = _program.path()
    if program is None:
        raise pytest.UsageError("--leaktrace: the program leaktrace is not installed")
    keep = options.leaktrace_keep
    if keep:
        os.makedirs(keep, exist_ok=True)
    folder = os.path.abspath(keep) if keep else tempfile.mkdtemp(prefix="leaktrace-")
    words = [program, "run", "--out", folder.replace("%", "%%") + "/%p.ltrace", "--step", "api"]
    simulate = options.leaktrace_simulate
    if simulate == "always" or (simulate == "auto" and not _has_gpu()):
        words.append("--simulate")
    words += ["--", sys.executable, *_own_words()]
    environment = {
        # Reports are asked for by test, not by step.
        "LEAKTRACE_DUMP_EVERY": "1000000000",
        "LEAKTRACE_HOLDERS": "off",
        "LEAKTRACE_QUIET": "1",
        **os.environ,
        FOLDER: folder,
    }
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        # Else what comes would be written to a file that nobody reads.
        capture.stop_global_capturing()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, words, environment)


def _own_words() -> List[str]:
    """What followed the interpreter on the command line."""
    words = getattr(sys, "orig_argv", None)
    return list(words[1:]) if words else ["-m", "pytest", *sys.argv[1:]]


def _has_gpu() -> bool:
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


class Plugin:
    """The tests' boundaries and verdicts, in the process that runs them."""

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
            self.recorder.leave_test()
        yield
        if wider:
            self.recorder.enter_test()

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
        """All runs of a test; the reports are the first one's, or of a run that was asked for and failed."""
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
                        judge.broken = True
                    break
                judge.add(run)
            verdict = judge.verdict()
        else:
            self.recorder.blamed |= run.steps
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
        """One run of a test, its own fixtures included; those of a wider scope stay."""
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
        """Takes down the fixtures of a wider scope whose time has come."""

        def take_down() -> None:
            item.session._setupstate.teardown_exact(nextitem)

        call = pytest.CallInfo.from_call(take_down, when="teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt))
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

    # From here on in the process that the user sees; with pytest-xdist, not where the tests run.

    def pytest_runtest_logreport(self, report: Any) -> None:
        told = getattr(report, "leaktrace", None)
        if told is None or report.when != "call":
            return
        self.judged += 1
        if told == "leak":
            self.leaks += 1
        elif told != "clean":
            self.notes[report.nodeid] = told

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.controls:
            return
        on = "the simulated GPU" if "/simgpu-" in os.environ.get("LD_LIBRARY_PATH", "") else "this machine's GPU"
        terminalreporter.section("leaktrace")
        for note in self.notes.values():
            if terminalreporter.verbosity > 0 or note.endswith("not known"):
                terminalreporter.line(note)
        said = {0: "none leaks", 1: "1 leaks"}.get(self.leaks, f"{self.leaks} leak")
        terminalreporter.line(f"{self.judged} passing tests judged on {on}: {said}")
        if self.keep or self.leaks:
            terminalreporter.line(f"recordings: {self.folder} (leaktrace report FILE)")

    def pytest_unconfigure(self) -> None:
        if self.controls and not self.keep and not self.leaks:
            # This process has its recording open still; the name is all that goes.
            shutil.rmtree(self.folder, ignore_errors=True)
