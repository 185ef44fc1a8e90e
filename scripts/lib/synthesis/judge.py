"""Compares a report with the truth: what was said of each cause, and what was said besides. Runs nothing."""

import re

import reports
from synthesis.framework import tables

# Kinds that say of a program that it has a fault.
ACCUSING = reports.LOSING | {"fragmentation", "carry-over"}
# A carry-over of less than this share of the peak is ordinary.
ORDINARY = 0.05
STATUS = {"returns": 0, "exit": 0, "exception": 1, "SIGKILL": -9, "out of memory": 1}


def named(frame):
    if not frame or not frame.get("line"):
        return None
    name = re.sub(r"<cell \d+>", "<cell>", frame["file"].rsplit("/", 1)[-1])
    return f"{name}:{frame['line']}"


def lines_of(finding):
    """Returns the lines of a finding's sites, and of every frame above them."""
    frames = [frame for site in finding["sites"] for frame in (site["allocated_at"], site.get("forward_site"), *site["stack"])]
    return {named(frame) for frame in frames} - {None}


def is_at(finding, cause):
    here = lines_of(finding)
    if here & set(cause.lines):
        return True
    # What the backward pass allocates has no line of its own; whatever is said of it will do.
    return None in cause.lines and any(site["allocated_at"] is None or site.get("forward_site") for site in finding["sites"])


def is_held_by(finding, cause):
    named_in = lambda path: any(re.search(rf"\b{re.escape(name)}\b", path) for name in cause.holders)
    return any(named_in(h["path"]) for h in finding["holders"] if h.get("retention") != "unreachable")


def allowed_steps(plan):
    """Returns the numbers of steps that are right."""
    n = plan.numbers["N"]
    allowed = {n, n - 1, n + 1}
    if plan.name("step") == "accumulation":
        allowed |= {n // 2 + extra for extra in (-1, 0, 1)}
    # Where nothing tells the phases apart, the rounds of an evaluation are steps too.
    if plan.name("final evaluation") == "yes" and "optimizer" not in plan.features():
        allowed |= {steps + 40 for steps in allowed}
    return allowed


def near(got, wanted, share):
    return abs(got - wanted) <= share * wanted


def figures(plan, cause, matched, report, problems):
    steps = report["steps"]["count"] - report["steps"]["phase_steps"]
    if steps in (plan.numbers["N"] - 1, plan.numbers["N"], plan.numbers["N"] + 1) and cause.kind == "leak":
        # Where every step adds other bytes, the middle is as right as the mean; what a program keeps in one iteration can
        # lie in two steps; and other lines may be a part of the finding, which the frame of an exception keeps now and then.
        each = sum(f["bytes_per_step"] for f in matched)
        # The report tells the mean beside it where that is another figure than what most steps add that add anything.
        mean = sum(f["growth_bytes_per_step"] / (f["growth_step_ratio"] or 1) for f in matched)
        told = not near(mean, each, 0.2)
        there = sum(site["bytes_per_step"] for f in matched for site in f["sites"] if named(site["allocated_at"]) in cause.lines)
        whole = sum(f["bytes_per_step"] * f["cohorts"] for f in matched)
        share = 0.5 if cause.varies else 0.05
        low, high = (sum(f["bytes_per_step_interval"][end] for f in matched if f["bytes_per_step_interval"]) for end in (0, 1))
        right = (any(near(got, cause.bytes_per_step, share) for got in (each, there))
                 or told and near(mean, cause.bytes_per_step, 0.1)
                 or cause.varies and low <= cause.bytes_per_step <= high or near(whole, cause.bytes, max(share, 0.1)))
        if not right:
            problems.append(("bytes", f"{each:g} bytes per step, not {cause.bytes_per_step:g}"))
    elif cause.kind == "residue":
        got = sum(f["live_bytes"] for f in matched)
        if not near(got, cause.bytes, 0.05):
            problems.append(("bytes", f"{got:g} bytes left, not {cause.bytes:g}"))
    holders = [h["path"] for f in matched for h in f["holders"] if h.get("retention") != "unreachable"]
    if not cause.holders:
        if holders:
            problems.append(("holder", f"held by {holders[:3]}, there is no holder"))
    elif not holders:
        problems.append(("no holder", f"no holder, not {cause.holders[0]}"))
    elif not any(is_held_by(f, cause) for f in matched):
        problems.append(("holder", f"held by {holders[:3]}, not {cause.holders}"))


def judge(plan, kind, causes, status, report):
    """Returns what was said of the program, in a word, and the problems: (class, explanation)."""
    problems, used = [], set()
    reported = [f for f in report["findings"] if f["kind"] in ACCUSING]
    said = "none"
    if status != STATUS[plan.name("end")]:
        problems.append(("status", f"exit status {status}"))
    steps = report["steps"]
    if not {steps["count"], steps["count"] - steps["phase_steps"]} & allowed_steps(plan):
        close = any(near(steps["count"], right, 0.1) for right in allowed_steps(plan))
        counted = f"{steps['count']} steps ({steps['phase_steps']} of phases, from {steps['source']})"
        problems.append(("few steps" if close else "steps", f"{counted}, not {plan.numbers['N']}"))
    for number, cause in enumerate(causes):
        at = [i for i, f in enumerate(reported) if is_at(f, cause)]
        matched = [i for i in at if reported[i]["kind"] in cause.accepted]
        used.update(matched)
        words = sorted({reported[i]["kind"] for i in at})
        if number == 0:
            said = next(iter(sorted({reported[i]["kind"] for i in matched})), words[0] if words else "none")
        if matched:
            figures(plan, cause, [reported[i] for i in matched], report, problems)
            if len(matched) > 1:
                problems.append(("split", f"{len(matched)} findings for one cause"))
        elif cause.required:
            benign = sorted({f["kind"] for f in report["non_leaks"] if is_at(f, cause)})
            words = words or [f"no leak: {', '.join(benign)}" if benign else "nothing"]
            if not steps["count"]:
                words = ["not judged"]
            problems.append(("missed", f"{cause.kind} at {cause.lines[:4]} ({cause.births} steps): said {words}"))
    for i, finding in enumerate(reported):
        if i in used:
            continue
        peak = max([device["peak_bytes"] for device in report["devices"]] or [1])
        if finding["kind"] == "carry-over" and (tables.CARRIES or finding["peak_reduction_bytes"] < ORDINARY * peak):
            continue
        # Where the run without leaktrace ended shortly after a collection, this one need not.
        if finding["kind"] == "pending-gc" and plan["where"].retention == "garbage":
            continue
        # What else a cause's holder keeps (the parameters and gradients of its graphs) is kept.
        if any(is_held_by(finding, cause) for cause in causes):
            continue
        if any(is_at(finding, cause) and not cause.required for cause in causes):
            continue
        if not causes and said == "none":
            said = finding["kind"]
        at = finding["sites"][0]["allocated_at"] if finding["sites"] else None
        paths = [holder["path"] for holder in finding["holders"][:2]]
        problems.append(("false", f"{finding['kind']} at {named(at)}, held by {paths}"))
    return said, problems
