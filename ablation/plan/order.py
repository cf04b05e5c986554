"""In which order stages start: seed by seed, so that all variants can be looked at before the last seed ends.

    priorities(plan) -> {address: number}      of what can start, Snakemake takes the largest first
    turns(plan) -> {address: (seed, study)}    the places of the first run that needs a stage

Within a seed the study with the most edges comes first, and within a study what most work waits for. What a stage needs
has its priority at least, so that nothing waits for a later seed.
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
    for address in reversed(plan.stages):  # what needs others before what they need
        for above in plan.upstream[address]:
            if address in found:
                found[above] = min(found.get(above, found[address]), found[address])
    return found


def priorities(plan: Plan) -> dict[Address, int]:
    """Return a number for each stage of a run, none of them twice."""
    minutes: dict[Address, int] = {}  # that a stage allows itself, and the longest line of those that wait for it
    for address in reversed(plan.stages):
        minutes[address] = minutes.get(address, 0) + plan.stages[address].resources.runtime
        for above in plan.upstream[address]:
            minutes[above] = max(minutes.get(above, 0), minutes[address])
    found = turns(plan)
    order = sorted(found, key=lambda address: (found[address], -minutes[address]))  # of equals as the plan has them
    return {address: len(order) - place for place, address in enumerate(order)}
