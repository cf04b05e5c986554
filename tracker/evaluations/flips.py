"""The items that changed most between two arms, with their words.

    find_flips(parent, child, measured, count) -> Flips

The change of an item is the mean over the paired seeds of child minus parent, in the direction's sense. One item that
changed is no finding: it is an example to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.config.study_schema import Analysis, Target
from tracker.evaluations.arms import Arm
from tracker.evaluations.sheet import ItemText, Sheet


@dataclass(frozen=True)
class Flip:
    """One item: its means over the seeds on both sides, and its words, of the first paired seed."""

    subset: str
    item: str
    before: float
    after: float
    change: float  # positive is an improvement
    text: ItemText
    answer_before: str


@dataclass(frozen=True)
class Flips:
    """What changed between two arms, item by item."""

    better: int  # items that improved, on average over the seeds
    worse: int
    best: tuple[Flip, ...]  # the largest improvement first
    worst: tuple[Flip, ...]


def find_flips(parent: Arm, child: Arm, analysis: Analysis, count: int) -> Flips:
    """Return the `count` items that improved most, and those that lost most."""
    seeds = sorted(parent.runs.keys() & child.runs.keys())
    better = worse = 0
    gained: list[tuple[float, str, int, float, float]] = []
    for subset in analysis.subsets:
        before, after = (np.mean([arm.runs[seed][subset].values for seed in seeds], axis=0) for arm in (parent, child))
        change = _gain(before, after, analysis)
        tiny = 1e-9 * max(float(np.abs(change).max()), 1e-300)
        better += int((change > tiny).sum())
        worse += int((change < -tiny).sum())
        order = np.argsort(change, kind="stable")
        for at in dict.fromkeys([*order[:count].tolist(), *order[::-1][:count].tolist()]):
            if abs(change[at]) > tiny:
                gained.append((float(change[at]), subset, at, float(before[at]), float(after[at])))
    gained.sort(key=lambda found: (-found[0], found[1], found[2]))
    best = [found for found in gained if found[0] > 0][:count]
    worst = [found for found in reversed(gained) if found[0] < 0][:count]
    if not seeds:
        return Flips(0, 0, (), ())
    ours, theirs = parent.runs[seeds[0]], child.runs[seeds[0]]
    words = {
        subset: _words(ours[subset], theirs[subset], [f for f in (*best, *worst) if f[1] == subset]) for subset in ours
    }
    made = [
        tuple(
            Flip(subset, str(theirs[subset].items[at]), before, after, change, *words[subset][at])
            for change, subset, at, before, after in found
        )
        for found in (best, worst)
    ]
    return Flips(better, worse, made[0], made[1])


def _gain(before: np.ndarray, after: np.ndarray, analysis: Analysis) -> np.ndarray:
    """Of each item; towards a target, the side on which the subset's mean lies says which way is better."""
    if isinstance(analysis.direction, Target):
        mean = float((before.mean() + after.mean()) / 2)
        return (after - before) * (1 if mean < analysis.direction.target else -1)
    return (after - before) * (1 if analysis.direction == "max" else -1)


def _words(
    ours: Sheet, theirs: Sheet, found: Sequence[tuple[float, str, int, float, float]]
) -> dict[int, tuple[ItemText, str]]:
    items = [str(theirs.items[at]) for _, _, at, _, _ in found]
    if not items:
        return {}
    before, after = ours.texts(items), theirs.texts(items)
    nothing = ItemText()
    return {
        at: (after.get(item, nothing), before.get(item, nothing).answered)
        for (_, _, at, _, _), item in zip(found, items, strict=True)
    }
