"""Writes the program of a plan: readable, as somebody would write it by hand.

The counted twin (`counted=True`) differs by a call of `__tick__()` before the first statement of a step, on the same
line, so that both have the same line numbers. Knows nothing of truth.
"""

import re

from synthesis.framework import tables

SLOT = re.compile(r"^( *)@(\w+)@$")


def fill(text, values):
    """Replaces {NAME} by its value, for the names in `values` only; values may contain names too."""
    for _ in range(3):
        text = re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), text)
    return text


def indent(text, by):
    return [by + line if line else "" for line in text.split("\n")]


def join(*parts):
    return "\n".join(part for part in parts if part)


def block(header, body):
    return header + "\n" + "\n".join(indent(body, "    "))


def names_of(plan):
    given = plan.features()
    owner = "self." if "class" in given else ""
    numbers = plan.numbers
    hooked = "hooked" in given
    return {
        **numbers,
        "o": owner,
        "V": plan["what"].value,
        "KEY": f"len({owner}{numbers['S']})" if hooked else "i",
        "COND": plan["when"].condition or "True",
        "MODEL": tables.MODEL,
    }


def batch(plan):
    """Returns the lines that make `x`."""
    if "loader" in plan.features():
        return 'x = batch.to("cuda")'
    if "same data" in plan.features():
        return "x = {o}data"
    size = "n" if plan.name("lengths") == "yes" else "{B}"
    made = tables.PINNED if plan.name("pinned") == "yes" else tables.BATCH
    lengths = "n = {o}lengths.choice((8, 16, 24, 32))" if plan.name("lengths") == "yes" else ""
    return join(lengths, "x = " + made.replace("{rows}", size))


def keep(plan):
    """Returns the lines that keep the value, and those that release it."""
    given, where = plan.features(), plan["where"]
    if "hooked" in given or not where.put:
        kept = ""
    elif "raises" in given:
        kept = "try:\n    validate(out, i)\n" + block("except ValueError as error:", where.put)
    elif plan["when"].condition:
        kept = block(f"if {plan['when'].condition}:", where.put)
    else:
        kept = where.put
    if "cleared" in given:
        kept = join(kept, block("if i % 20 == 19:", where.clear))
    if "trimmed" in given:
        kept = join(kept, where.trim)
    return kept


def setup(plan):
    given, where = plan.features(), plan["where"]
    model = "" if "folds" in given else "{o}model = {MODEL}"
    beside = [plan[d].setup for d in plan.choices if d not in ("loop",) and plan[d].setup]
    hook = ""
    if "hooked" in given:
        hook = block("\ndef save_activation(module, args, output):", where.put)
        hook += "\n\n{o}model[0].register_forward_hook(save_activation)"
    first = "{o}model = {MODEL}" if "folds" in given and beside else model
    return join(first, *beside, hook) or ("pass" if "class" in given else "")


def imports(plan, dimensions=None):
    modules = {module for d in dimensions or plan.choices for module in plan[d].imports}
    plain = "\n".join(f"import {module}" for module in sorted(modules))
    return plain + "\n\n" if plain else ""


def compose(plan, counted=False):
    """Returns the source of a plan's program."""
    given, values = plan.features(), names_of(plan)
    made = batch(plan)
    if counted:
        made = "__tick__(); " + made
    noise = [plan[d].last for d in plan.choices if d not in ("end", "loop") and plan[d].last]
    rest = join(plan["step"].body, keep(plan), *noise)
    framework = tables.IMPORTS + ("from torch.nn import functional as F\n" if "F." in fill(rest, values) else "")
    used = [name for name in ("x", "out", "loss") if name == "x" or name in given]
    # Of JAX the gradients are what a function returns, too.
    used += ["grads"] if re.search(r"\bgrads\b", plan["what"].value) else []
    slots = {
        "imports": imports(plan) + framework,
        "setup": setup(plan),
        "batch": made,
        "rest": rest,
        "step": join(made, rest),
        "compute": join(made, plan["step"].body),
        "keep": join(keep(plan), *noise) or "pass",
        "names": ", ".join(used),
        "value": plan["step"].value,
        "after": join(plan["final evaluation"].body, plan["end"].last),
        "worker": "{S} = []" if "local" in given else "",
    }
    definitions = "\n\n\n".join(plan[d].definitions.strip() for d in plan.choices if plan[d].definitions)
    if "cells" in given:
        slots["imports"] = slots["imports"].rstrip() + ("\n\n\n" + definitions + "\n\n" if definitions else "\n")
        top = imports(plan, ["end"]) + ("import torch\n" if "torch" in slots["after"] else "")
    else:
        top = slots["imports"] + ("\n\n" + definitions + "\n\n" if definitions else "")
        if plan["loop"].body.startswith(("def", "class", "async")):
            top = top.rstrip() + "\n\n"
    lines = []
    for line in fill(plan["loop"].body, values).split("\n"):
        slot = SLOT.match(line)
        if slot is None:
            lines.append(re.sub(r"@(\w+)@", lambda m: slots[m[1]], line))
        elif slots[slot[2]]:
            lines += indent(fill(slots[slot[2]], values), slot[1])
    text = fill(top, values) + "\n" + fill("\n".join(lines), values)
    text = re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"
    return text
