"""The truth of a program: its plan says the kind, PyTorch's own allocator the lines, bytes and steps.

Where the two contradict each other, the program is no test (`Contradiction`). Knows nothing of leaktrace.
"""

import dataclasses
import statistics

# A line that keeps blocks of so many steps keeps them by what the plan says, and not as a parameter or a copy.
FEW = 5
# The first steps also allocate what stays for good, on the same lines.
FIRST = 3
# What comes of fewer steps need not be found; of fewer than these, `growing` will do for a leak.
REQUIRED = 8
CERTAIN = 20


class Contradiction(Exception):
    """Raised where PyTorch's counters contradict what follows from the choices."""


@dataclasses.dataclass
class Cause:
    """One thing that must be reported, or may be."""

    kind: str
    accepted: list
    required: bool
    lines: list  # FILE:LINE of what allocates; None for the backward pass
    bytes: int
    blocks: int
    births: int  # distinct steps whose blocks are alive, without the first few
    holders: list
    varies: bool

    @property
    def bytes_per_step(self):
        return self.bytes / self.births


def kept_by_line(counted):
    """Returns, for each line, the bytes alive at the end by the step that allocated them."""
    lines, last = {}, len(counted["series"])
    for step, size, at in counted["blocks"]:
        # What the last step made is alive anyway.
        if 0 < step < last - 1:
            lines.setdefault(at, []).append((step, size))
    lines = {at: without_workspaces(blocks) for at, blocks in lines.items()}
    return {at: blocks for at, blocks in lines.items() if len({step for step, _ in blocks}) >= FEW}


def without_workspaces(blocks):
    """Returns the blocks of a line without those that a library set up there: a thread that has a cuBLAS handle of its
    own may get its workspace in any step."""
    usual = statistics.median(size for _, size in blocks)
    return [(step, size) for step, size in blocks if size < 64 * usual]


def line_of(source, text):
    """Returns the line of a source that contains a text, as PyTorch names it: lines of cells count from theirs."""
    number, file = 0, "program.py"
    for line in source.split("\n"):
        number = 1 if '"""' in line else number + 1
        if line.endswith('"""'):
            file = "<setup>" if line.startswith("SETUP") else "<cell>"
        if text in line:
            return f"{file}:{number}"
    return None


def holders_of(plan):
    names = [plan.numbers["S"], *plan["where"].holders]
    for owner in ("recorder", "metric"):
        if f"{owner}." in plan["where"].put:
            names.append(owner)
    return names


def expected_kind(plan, births):
    given, where = plan.features(), plan["where"]
    if where.retention == "weak" or given & {"plateau", "trimmed"} or where.retention == "bounded":
        return "none"
    if "cleared" in given:
        return "periodic"
    if not births:
        return "none"
    return "pending-gc" if where.retention == "garbage" else "leak"


def is_store(plan):
    """Returns whether the program could be one that makes features first and then works with them: a loop that keeps
    what it computes, and then another, no training in either."""
    computes_only = ("inference", "one call", "without jit")
    return plan.name("final evaluation") == "yes" and plan.name("step").startswith(computes_only)


def cause(plan, kind, found, holders):
    blocks = [block for at in found for block in found[at] if block[0] > FIRST]
    births = len({step for step, _ in blocks})
    accepted = [kind]
    if kind == "leak" and births < CERTAIN:
        accepted.append("growing")
    required = births >= (CERTAIN if kind == "pending-gc" else REQUIRED) and not is_store(plan)
    size = sum(size for _, size in blocks)
    of_steps = {}
    for step, bytes_ in blocks:
        of_steps[step] = of_steps.get(step, 0) + bytes_
    # Some steps may add more than others: what else a graph holds, a new model with its parameters.
    varies = plan.name("lengths") == "yes" or len(set(of_steps.values())) > 1
    return Cause(kind, accepted, required, sorted(found, key=str), size, len(blocks), births, holders, varies)


def decide(plan, source, counted):
    """Returns the kind of the program, and its causes."""
    check(counted)
    found = kept_by_line(counted)
    causes = []
    second = line_of(source, "masks.append(") if plan.name("second") == "yes" else None
    if second:
        if second not in found:
            raise Contradiction(f"the second cause keeps nothing at {second}")
        causes.append(cause(plan, "leak", {second: found.pop(second)}, ["masks"]))
    if plan["where"].retention == "residue":
        causes.insert(0, residue(plan, source, counted))
    births = len({step for blocks in found.values() for step, _ in blocks})
    kind = expected_kind(plan, births)
    if kind in ("leak", "pending-gc"):
        causes.insert(0, cause(plan, kind, found, holders_of(plan) if kind == "leak" else []))
    elif kind == "none" and plan["where"].capacity <= 16:
        last = len(counted["series"])
        late = {step for blocks in found.values() for step, _ in blocks if FIRST < step < last * 0.4}
        if len(late) > 12:
            raise Contradiction(f"{len(late)} steps before the middle are alive: {sorted(found, key=str)}")
    return causes[0].kind if causes else kind, causes


def residue(plan, source, counted):
    """Returns the cause of what a model left behind that was unloaded."""
    line = line_of(source, "encoder = nn.Sequential")
    blocks = [size for _, size, at in counted["blocks"] if at == line]
    return Cause("residue", ["residue"], True, [line], sum(blocks), len(blocks), 1, [plan.numbers["S"]], False)


def check(counted):
    """Holds the allocator's trace against its counter."""
    if counted["total"] != counted["allocated"]:
        raise Contradiction(f"{counted['total']} bytes in blocks, {counted['allocated']} by the counter")
