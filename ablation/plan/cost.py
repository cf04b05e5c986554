"""What stages that are to run will cost, as those of their kind have cost so far."""

from collections.abc import Iterable

from ablation.plan.plan import Plan
from ablation.plan.plan_file import PlannedStage
from ablation.plan.retry import States


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
