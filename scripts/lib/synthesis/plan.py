"""A plan: one choice for each dimension, and numbers; drawn from a seed, or made simpler.

Knows which combinations are valid, from what the choices need and exclude; writes no program.
"""

import dataclasses
import random

from synthesis.framework import tables

CONTAINERS, DIMENSIONS, LOSSES = tables.CONTAINERS, tables.DIMENSIONS, tables.LOSSES

NUMBERS = {
    "N": (60, 80, 100, 120, 140, 160),
    "B": (8, 16, 32),
    "H": (32, 64, 128),
    "K": (2, 3, 4, 5),
    "S": CONTAINERS,
    "LOSS": LOSSES,
}


@dataclasses.dataclass(frozen=True)
class Plan:
    choices: dict  # dimension: Choice
    numbers: dict
    seed: int = -1

    def __getitem__(self, dimension):
        return self.choices[dimension]

    def name(self, dimension):
        return self.choices[dimension].name

    def features(self):
        return {feature for choice in self.choices.values() for feature in choice.gives}

    def is_valid(self):
        given = set()
        for choice in self.choices.values():
            if not fits(choice, given):
                return False
            given.update(choice.gives)
        return True

    def __str__(self):
        said = [f"{d}: {c.name}" for d, c in self.choices.items() if c is not DIMENSIONS[d][0] or d in ("loop", "step", "where", "what")]
        return ", ".join([*said, f"{self.numbers['N']} steps"])


def fits(choice, given):
    """Whether a choice is valid after choices that gave these features."""
    return given.issuperset(choice.needs) and given.isdisjoint(choice.without)


def draw(seed, fixed=None):
    """Returns the plan of a seed. `fixed`: dimension to the name of a choice, which is taken where it is valid."""
    rng = random.Random(seed)
    choices, given = {}, set()
    for dimension, table in DIMENSIONS.items():
        valid = [choice for choice in table if fits(choice, given)]
        wanted = [choice for choice in valid if choice.name == (fixed or {}).get(dimension)]
        drawn = rng.choices(valid, [choice.weight for choice in valid])[0]
        choices[dimension] = wanted[0] if wanted else drawn
        given.update(choices[dimension].gives)
    numbers = {name: rng.choice(values) for name, values in NUMBERS.items()}
    return Plan(choices, numbers, seed)


def named(choices):
    """Returns the simplest plan with these choices (dimension to name) and numbers."""
    plan, given = {}, set()
    for dimension, table in DIMENSIONS.items():
        valid = [choice for choice in table if fits(choice, given)]
        wanted = choices.get(dimension, valid[0].name)
        found = [choice for choice in valid if choice.name == wanted]
        if not found:
            raise SystemExit(f"{dimension}={wanted} is not valid here; valid are {', '.join(choice.name for choice in valid)}")
        plan[dimension] = found[0]
        given.update(found[0].gives)
    unknown = [name for name in choices if name not in DIMENSIONS and name not in NUMBERS]
    if unknown:
        raise SystemExit(f"no dimension: {', '.join(unknown)}; there are {', '.join([*DIMENSIONS, *NUMBERS])}")
    numbers = {name: type(values[0])(choices.get(name, values[0])) for name, values in NUMBERS.items()}
    return Plan(plan, numbers)


def simpler(plan):
    """Yields valid plans which differ from this one in one choice or number that is simpler, the largest
    simplification first."""
    noise = [d for d in DIMENSIONS if d not in ("loop", "step", "where", "what", "when", "release", "end")]
    plain = dataclasses.replace(plan, choices={**plan.choices, **{d: DIMENSIONS[d][0] for d in noise}})
    if plain.choices != plan.choices:
        yield plain
    order = [*[d for d in reversed(DIMENSIONS) if d not in ("what", "where", "step", "loop")], "loop", "step", "what", "where"]
    for dimension in order:
        table = DIMENSIONS[dimension]
        for choice in table[: table.index(plan[dimension])]:
            other = dataclasses.replace(plan, choices={**plan.choices, dimension: choice})
            if other.is_valid():
                yield other
                break
    smallest = {name: values[0] for name, values in NUMBERS.items()}
    for numbers in ({**smallest, "N": plan.numbers["N"]}, smallest):
        if numbers != plan.numbers:
            yield dataclasses.replace(plan, numbers=numbers)
