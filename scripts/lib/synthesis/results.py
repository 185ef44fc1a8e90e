"""Prints results: a line per program, a confusion table of kinds, and how often each choice went wrong."""

import collections
import json

from synthesis.campaign import SOFT
from synthesis.framework import tables

DIMENSIONS = tables.DIMENSIONS

NO_TEST = {"contradiction", "run"}


def read(folder):
    """Returns the results that a folder keeps; of a seed that ran twice, the later."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    return list({result["seed"]: result for result in map(json.loads, lines)}.values())


def classes(result):
    return {problem[0] for problem in result["problems"]}


def describe(result):
    plain = {d: table[0].name for d, table in DIMENSIONS.items()}
    shown = ("loop", "step", "where", "what")
    chosen = [name for d, name in result["choices"].items() if d in shown]
    chosen += [d if name == "yes" else name for d, name in result["choices"].items() if d not in shown and name != plain[d]]
    return " | ".join(chosen)


def print_result(result):
    wrong = classes(result)
    word = "ok" if not wrong else "(ok)" if wrong <= SOFT else "WRONG"
    print(f"{result['seed']:6} {word:6} {result['seconds']:5.1f} s  {result['truth']} -> {result['said']}  {describe(result)}", flush=True)
    for name, text in result["problems"]:
        print(f"           {name}: {text}", flush=True)


def print_tables(results):
    tests = [result for result in results if not classes(result) & NO_TEST]
    print(f"\n{len(results)} programs, {len(results) - len(tests)} of them no test")
    kinds = sorted({result["truth"] for result in tests})
    said = sorted({result["said"] for result in tests})
    counts = collections.Counter((result["truth"], result["said"]) for result in tests)
    print(f"\n{'truth':14}" + "".join(f"{'said ' + word:>18}" for word in said))
    for kind in kinds:
        print(f"{kind:14}" + "".join(f"{counts[kind, word] or '':>18}" for word in said))
    problems = collections.Counter(name for result in results for name in classes(result))
    right = sum(not classes(result) - SOFT for result in tests)
    print(f"\n{right} of {len(tests)} right; problems: " + ", ".join(f"{name} {n}" for name, n in problems.most_common()))
    print("\nwrong of all, per choice:")
    for dimension in DIMENSIONS:
        cells = collections.defaultdict(lambda: [0, 0])
        for result in tests:
            cell = cells[result["choices"][dimension]]
            cell[0] += bool(classes(result) - SOFT)
            cell[1] += 1
        ordered = sorted(cells.items(), key=lambda item: -item[1][0] / item[1][1])
        print(f"  {dimension:12}" + ", ".join(f"{name} {wrong}/{n}" for name, (wrong, n) in ordered))
