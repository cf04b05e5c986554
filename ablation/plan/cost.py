"""What stages that are to run will cost, as those of their kind have cost so far."""

import subprocess
import sys
from collections.abc import Iterable

from ablation.contract.reading import duration
from ablation.contract.stage_folder import DATABASE
from ablation.plan.plan_file import Plan, PlannedStage
from ablation.plan.retry import States, pending


def hours_of(plan: Plan, states: States, stages: Iterable[PlannedStage]) -> tuple[float, int]:
    """Return the device-hours of stages, each as the mean of its kind, and how many of them are of a kind not yet run.

    Device-hours are wall time times devices; a processor without devices counts as one.
    """
    spent: dict[str, list[float]] = {}
    for (id, _), state in states.items():
        if state.state == "ok" and state.wall_s is not None:
            spent.setdefault(id, []).append(state.wall_s / 3600 * (state.devices or 1))
    kinds = [stage.id for stage in stages]
    known = [sum(spent[id]) / len(spent[id]) for id in kinds if id in spent]
    return sum(known), len(kinds) - len(known)


def in_words(hours: float, unknown: int, jobs: int, price: float | None) -> str:
    """Return `about 2.3 h of device time (5.80), and 4 more of unknown cost`."""
    if unknown == jobs:
        return "of unknown cost"
    money = f" ({hours * price:.2f})" if price else ""
    return f"about {duration(3600 * hours)} of device time{money}" + (
        f", and {unknown} more of unknown cost" if unknown else ""
    )


def say_due(plan: Plan, states: States) -> None:
    """Print what the jobs that are to run cost, and what their studies' seeds can find, as earlier results tell."""
    if not (jobs := pending(plan, states)):
        return
    cost = in_words(*hours_of(plan, states, jobs), len(jobs), plan.settings.cost_per_device_hour)
    print(f"to run: {len(jobs)} job{'s' * (len(jobs) != 1)}, {cost}", file=sys.stderr, flush=True)
    if not (plan.settings.results / DATABASE).exists():
        return
    studies = dict.fromkeys(job.study for job in jobs if job.seed is not None)
    seeds = [f"{study}={len(plan.settings.seeds_of(study))}" for study in studies]
    # A process of its own: planning imports nothing that judges.
    words = [sys.executable, "-m", "ablation.cli.due", str(plan.settings.results), *seeds]
    subprocess.run(words, stdout=sys.stderr, check=False)
