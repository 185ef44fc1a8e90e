"""Runs the program of a plan from source to verdict, and keeps what came of it. Draws no plans."""

import dataclasses
import json
import time

from synthesis.compose import compose
from synthesis.execute import Failed, Machine
from synthesis.judge import judge
from synthesis.truth import Contradiction, decide

# A problem of these classes alone does not make a verdict wrong; it is counted apart.
SOFT = {"no holder", "split", "few steps"}


class Campaign:
    """Many programs, one after another."""

    def __init__(self, fresh=False, folder=None):
        self.machine, self.folder = Machine(fresh), folder
        if folder:
            folder.mkdir(parents=True, exist_ok=True)

    def verdict(self, plan, keep=None):
        """Returns what is true, what was said and the problems of a plan's program."""
        source = compose(plan)
        result = {"seed": plan.seed, "choices": {d: c.name for d, c in plan.choices.items()}, "numbers": plan.numbers,
                  "truth": None, "said": None, "causes": [], "problems": []}
        try:
            kind, causes = decide(plan, source, self.machine.counted(compose(plan, counted=True), plan.numbers["N"]))
            result.update(truth=kind, causes=[dataclasses.asdict(cause) for cause in causes])
            status, report = self.machine.judged(source, keep)
            result["said"], result["problems"] = judge(plan, kind, causes, status, report)
            result["steps"] = report["steps"]["count"]
        except Contradiction as contradiction:
            result["problems"] = [("contradiction", str(contradiction))]
        except Failed as failed:
            result["problems"] = [("run", str(failed))]
        return result

    def run(self, plan):
        """Returns the result of a plan; a program that fails does so in a new process too."""
        began = time.monotonic()
        keep = self.folder and self.folder / str(plan.seed)
        result = self.verdict(plan, keep)
        if hard(result) and not self.machine.fresh:
            forked = result["problems"]
            self.machine.fresh = True
            try:
                result = self.verdict(plan, keep)
            finally:
                self.machine.fresh = False
            if not hard(result):
                result["only_forked"] = forked
        result["seconds"] = round(time.monotonic() - began, 1)
        if self.folder:
            with open(self.folder / "results.jsonl", "a") as file:
                file.write(json.dumps(result) + "\n")
            if not hard(result) and keep.exists():
                for file in keep.iterdir():
                    file.unlink()
                keep.rmdir()
        return result


def hard(result):
    return [problem for problem in result["problems"] if problem[0] not in SOFT]
