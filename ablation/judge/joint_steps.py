"""Small gains that add up: consecutive steps of which none is shown alone, while all of them together are."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.judge.comparisons import Comparison
from ablation.judge.measure import around, measure
from ablation.judge.paths import path_level


@dataclass(frozen=True)
class JointSteps:
    """What the steps from an ancestor to a variant do together; positive effects are improvements."""

    ancestor: str
    child: str
    steps: int
    effect: float
    low: float  # interval for every variant against each of its ancestors at once
    high: float


def joint_steps(comparisons: Sequence[Comparison]) -> list[JointSteps]:
    """The longest such sequences among a study's comparisons of each variant with its parent."""
    if not comparisons or comparisons[0].of.analysis.comparisons != "parent":
        return []
    correction, study = comparisons[0].correction, comparisons[0].of
    parents = {of.child: of.parent for of in comparisons if of.pair in correction.adjusted and not of.significant}
    found = []
    for child in parents.keys() - set(parents.values()):
        way = [child]
        while way[-1] in parents:
            way.append(parents[way[-1]])
        if len(way) < 3:
            continue
        whole = measure(study, child, way[-1])
        if not whole.interims or whole.p != whole.p:
            continue
        low, high = around(whole.effect, whole.interims[-1], path_level(correction))
        if low > 0 or high < 0:
            found.append(JointSteps(way[-1], child, len(way) - 1, whole.effect, low, high))
    return sorted(found, key=lambda steps: list(study.parents).index(steps.child))
