"""Finds small gains that add up: steps of which none is significant alone, although together they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablation.judge.comparisons import Comparison
from ablation.judge.measure import measure
from ablation.judge.paths import path_level


@dataclass(frozen=True)
class JointSteps:
    """The joint effect of several steps, from an ancestor to a variant; a positive effect is an improvement."""

    ancestor: str
    child: str
    steps: int
    effect: float
    low: float  # interval for every variant against each of its ancestors at once
    high: float


def joint_steps(comparisons: Sequence[Comparison]) -> list[JointSteps]:
    """Return the longest sequences of steps that are significant together although no single step is."""
    if not comparisons or comparisons[0].of.analysis.comparisons != "parent":
        return []
    correction, study = comparisons[0].correction, comparisons[0].of
    parents = {
        step.child: step.parent for step in comparisons if step.pair in correction.adjusted and not step.significant
    }
    shown = []
    for child in parents.keys() - set(parents.values()):
        path = [child]
        while path[-1] in parents:
            path.append(parents[path[-1]])
        if len(path) < 3:
            continue
        together = measure(study, child, path[-1])
        if np.isnan(together.p):
            continue
        low, high = together.interval_at(path_level(correction))
        if low > 0 or high < 0:
            shown.append(JointSteps(path[-1], child, len(path) - 1, together.effect, low, high))
    return sorted(shown, key=lambda steps: list(study.parents).index(steps.child))
