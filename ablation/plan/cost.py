"""Cost of the stages that are to run, estimated from earlier stages of the same kind."""

import subprocess
import sys
from collections.abc import Iterable

from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, device_time
from ablation.contract.stage_folder import CHECKS, DATABASE
from ablation.contract.status import STATUS, read_state
from ablation.plan.plan_file import Address, Plan, PlannedStage, read_plan
from ablation.plan.retry import States, pending


def hours_of(plan: Plan, states: States, stages: Iterable[PlannedStage]) -> tuple[float, int]:
    """Return the estimated device-hours of stages, and the number of stages whose kind has never run.

    A stage's estimate is the mean of earlier stages with its id, only those of its own variants if there are any. Runs
    with earlier code or values and those of `ablation check` count as well. Device-hours are wall time times the number
    of devices, or times 1 on the CPU.
    """
    stages = list(stages)
    spent: dict[tuple[str, str | None], list[float]] = {}
    variants = _variants(plan)
    for address, state in (states | _earlier(plan, states, stages)).items():
        if state.state == "ok" and state.wall_s is not None:
            hours = state.wall_s / 3600 * (state.devices or 1)
            for variant in (None, *variants.get(address, ())):
                spent.setdefault((address[0], variant), []).append(hours)
    estimates = []
    for stage in stages:
        earlier_hours = [hours for variant in stage.variants for hours in spent.get((stage.id, variant), ())]
        estimates += [sum(costs) / len(costs)] if (costs := earlier_hours or spent.get((stage.id, None), [])) else []
    return sum(estimates), len(stages) - len(estimates)


def _earlier(plan: Plan, states: States, stages: Iterable[PlannedStage]) -> States:
    """Return the states of stages with the ids of `stages` that are not in the plan, or that `ablation check` ran."""
    results = plan.settings.results
    kinds = {stage.id: stage.dir.parent for stage in stages}
    folders = [
        (id, path.parent)
        for id, folder in kinds.items()
        for place in (folder, results / CHECKS / folder.relative_to(results))
        for path in place.glob(f"*/{STATUS}")
    ]
    return {(id, folder.name): read_state(folder) for id, folder in folders if (id, folder.name) not in states}


def _variants(plan: Plan) -> dict[Address, tuple[str, ...]]:
    """Return the variants of each stage of this plan and of the previous plan."""
    try:
        before = read_plan(plan.file).stages
    except ConfigError:
        before = ()
    return {stage.address: stage.variants for stage in (*before, *plan.stages.values())}


def in_words(hours: float, unknown: int, jobs: int, price: float | None) -> str:
    """Return a cost as text, such as `about 2.3 h of device time (5.80), not counting 4 jobs of unknown cost`."""
    if unknown == jobs:
        return "of unknown cost"
    return f"about {device_time(hours, price)}" + (
        f", not counting {counted(unknown, 'job')} of unknown cost" if unknown else ""
    )


def say_due(plan: Plan, states: States) -> None:
    """Print the estimated cost of the jobs to run, and the effects that the seeds of their studies can detect."""
    if not (jobs := pending(plan, states)):
        return
    cost = in_words(*hours_of(plan, states, jobs), len(jobs), plan.settings.cost_per_device_hour)
    print(f"to run: {counted(len(jobs), 'job')}, {cost}", file=sys.stderr, flush=True)
    if not (plan.settings.results / DATABASE).exists():
        return
    studies = dict.fromkeys(job.study for job in jobs if job.seed is not None)
    seeds = [f"{study}={len(plan.settings.seeds_of(study))}" for study in studies]
    # In a new process, because planning must not import the judging code.
    words = [sys.executable, "-m", "ablation.cli.power", str(plan.settings.results), *seeds]
    subprocess.run(words, stdout=sys.stderr, check=False)
