"""Order of stages, seed by seed, so that variants can be compared before the last seed ends; and groups of stages.

    priorities(plan) -> {address: number}      Snakemake starts the job with the largest number first
    turns(plan) -> {address: (seed, study)}    positions, from 0, of seed and study of the first run that needs a stage

Within a seed the study with the most comparisons comes first, and within a study the stage that most work depends on.
A stage's inputs have at least its priority, so that no stage waits for a later seed.
"""

from dataclasses import dataclass

from ablation.config.study_schema import Resources
from ablation.plan.plan_file import Address, Plan

Turns = dict[Address, tuple[int, int]]


def turns(plan: Plan) -> Turns:
    """Return {stage: (position of the seed in its study, position of the study)} of the first run that needs it."""
    run_turns: Turns = {}
    comparisons = {
        study.name: sum(parent is not None for parent in study.parents.values()) for study in plan.content.studies
    }
    for place, study in enumerate(sorted(plan.content.studies, key=lambda study: -comparisons[study.name])):
        seeds = {seed: number for number, seed in enumerate(dict.fromkeys(run.seed for run in study.runs))}
        for run in study.runs:
            for stage, key in run.stages.items():
                address, turn = (f"{study.name}.{stage}", key), (seeds[run.seed], place)
                run_turns[address] = min(run_turns.get(address, turn), turn)
    for address in reversed(plan.stages):  # stages before their inputs
        for source in plan.upstream[address]:
            if address in run_turns:
                run_turns[source] = min(run_turns.get(source, run_turns[address]), run_turns[address])
    return run_turns


def priorities(plan: Plan) -> dict[Address, int]:
    """Return {stage: its priority} for all stages that runs need; all differ, and the largest starts first."""
    minutes: dict[Address, int] = {}  # minutes of the longest chain of stages that begins with a stage
    for address in reversed(plan.stages):
        minutes[address] = minutes.get(address, 0) + plan.stages[address].resources.runtime
        for source in plan.upstream[address]:
            minutes[source] = max(minutes.get(source, 0), minutes[address])
    run_turns = turns(plan)
    # Equal stages keep the order of the plan.
    order = sorted(run_turns, key=lambda address: (run_turns[address], -minutes[address]))
    return {address: len(order) - place for place, address in enumerate(order)}


@dataclass(frozen=True)
class Group:
    """Stages that are submitted together, in the order in which they run.

    Groups of different runs may have the same name, because Snakemake separates stages without dependencies.
    """

    name: str
    members: tuple[Address, ...]


Groups = dict[Address, Group]


def groups_of(plan: Plan) -> Groups:
    """Return {stage: its group} for the stages that are in a group; empty if `group_minutes` is 0.

    Consecutive stages of exactly the same runs become one scheduler job if each takes at most `group_minutes`, because
    queueing would take longer than they do. No two groups depend on each other: a stage that lies between two members
    of a group serves the same runs, so it is also a member or, if it takes longer, ends the group.
    """
    groups: Groups = {}
    for study in plan.content.studies:
        serves: dict[Address, list[int]] = {}
        for number, run in enumerate(study.runs):
            for stage, key in run.stages.items():
                serves.setdefault((f"{study.name}.{stage}", key), []).append(number)
        alike: dict[tuple[int, ...], list[Address]] = {}
        for address in plan.stages:  # in the order in which they can run
            if address in serves:
                alike.setdefault(tuple(serves[address]), []).append(address)
        for runs, addresses in alike.items():
            for members in _short(plan, addresses):
                group = Group(f"{members[0][0].replace('.', '_')}_{len(runs)}", members)
                groups.update(dict.fromkeys(members, group))
    return groups


def request_of(plan: Plan, groups: Groups, address: Address) -> Resources:
    """Return the resources of a stage's job; for a group, the sum of minutes and the maximum of each other resource."""
    members = groups[address].members if address in groups else (address,)
    needs = [plan.stages[member].resources for member in members]
    return Resources(
        threads=max(need.threads for need in needs),
        mem_mb=max(need.mem_mb for need in needs),
        runtime=sum(need.runtime for need in needs),
        gpu=max(need.gpu for need in needs),
    )


def _short(plan: Plan, addresses: list[Address]) -> list[tuple[Address, ...]]:
    """Return all series of at least two consecutive short stages among the addresses."""
    stretches: list[list[Address]] = [[]]
    for address in addresses:
        if plan.stages[address].resources.runtime <= plan.settings.group_minutes:
            stretches[-1].append(address)
        else:
            stretches.append([])
    return [tuple(stretch) for stretch in stretches if len(stretch) > 1]
