"""The order of stages: seed by seed, so that all variants can be compared before the last seed ends.

    priorities(plan) -> {address: number}      of what can start, Snakemake takes the largest first
    turns(plan) -> {address: (seed, study)}    the places of the first run that needs a stage

Within a seed the study with the most edges comes first, and within a study the stage that most work waits for. A
stage's inputs have at least its priority, so that nothing waits for a later seed.
"""

from ablation.plan.plan import Address, Plan

Turns = dict[Address, tuple[int, int]]


def turns(plan: Plan) -> Turns:
    """Return for each stage of a run the place of the first seed, and of its first study, that needs the stage."""
    found: Turns = {}
    edges = {study.name: sum(parent is not None for parent in study.parents.values()) for study in plan.content.studies}
    for place, study in enumerate(sorted(plan.content.studies, key=lambda study: -edges[study.name])):
        seeds = {seed: number for number, seed in enumerate(dict.fromkeys(run.seed for run in study.runs))}
        for run in study.runs:
            for stage, key in run.stages.items():
                address, turn = (f"{study.name}.{stage}", key), (seeds[run.seed], place)
                found[address] = min(found.get(address, turn), turn)
    for address in reversed(plan.stages):  # stages before their inputs
        for above in plan.upstream[address]:
            if address in found:
                found[above] = min(found.get(above, found[address]), found[address])
    return found


def priorities(plan: Plan) -> dict[Address, int]:
    """Return a number for each stage of a run, none of them twice."""
    minutes: dict[Address, int] = {}  # minutes of a stage, and of the longest chain that waits for it
    for address in reversed(plan.stages):
        minutes[address] = minutes.get(address, 0) + plan.stages[address].resources.runtime
        for above in plan.upstream[address]:
            minutes[above] = max(minutes.get(above, 0), minutes[address])
    found = turns(plan)
    order = sorted(found, key=lambda address: (found[address], -minutes[address]))  # of equals as the plan has them
    return {address: len(order) - place for place, address in enumerate(order)}
