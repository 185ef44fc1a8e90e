"""Makes a failing plan simpler, one choice after another, while the failure stays."""

from synthesis.campaign import hard
from synthesis.compose import compose
from synthesis.plan import simpler


def shrink(campaign, plan, problem=None):
    """Prints the simplest plan that fails as this one does; returns the exit status."""
    result = campaign.verdict(plan)
    found = [name for name, _ in hard(result) or result["problems"]]
    if not found or (problem and problem not in [name for name, _ in result["problems"]]):
        print(f"seed {plan.seed} does not fail{' that way' if problem else ''}: {result['problems']}")
        return 0
    problem = problem or found[0]
    shrinking = True
    while shrinking:
        shrinking = False
        for other in simpler(plan):
            tried = campaign.verdict(other)
            if (tried["truth"], tried["said"]) == (result["truth"], result["said"]) and problem in [name for name, _ in tried["problems"]]:
                print(f"# still fails: {other}", flush=True)
                plan, result, shrinking = other, tried, True
                break
    print(f"\n# {plan}\n# truth: {result['truth']}; " + "; ".join(f"{name}: {text}" for name, text in result["problems"]))
    print(compose(plan))
    return 1
