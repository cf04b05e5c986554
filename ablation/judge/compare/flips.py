"""The items that changed most between two arms, with their texts.

    most_changed(parent, child, analysis, count) -> Flips

The change of an item is the mean over the paired seeds of child minus parent, in the direction's sense. One item that
changed is not a finding: it is an example to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablation.config.study_schema import Analysis, Target
from ablation.judge.compare.arms import Arm
from ablation.readers.sheet import ItemText

_Found = tuple[float, str, int, float, float]  # change, subset, place, before, after


@dataclass(frozen=True)
class Flip:
    """One item: its means over the seeds on both sides, and its texts in the seed in which it changed most."""

    subset: str
    item: str
    before: float
    after: float
    change: float  # positive is an improvement
    seed: int  # of the words
    text: ItemText
    answer_before: str


@dataclass(frozen=True)
class Flips:
    """The changes between two arms, item by item."""

    better: int  # items that improved, on average over the seeds
    worse: int
    best: tuple[Flip, ...]  # the largest improvement first
    worst: tuple[Flip, ...]


def most_changed(parent: Arm, child: Arm, analysis: Analysis, count: int) -> Flips:
    """Return the `count` items that improved most, and those that lost most."""
    seeds = sorted(parent.runs.keys() & child.runs.keys())
    if not seeds:
        return Flips(0, 0, (), ())
    better = worse = 0
    gained: list[_Found] = []
    for subset in analysis.subsets:
        before, after = (np.mean([arm.runs[seed][subset].values for seed in seeds], axis=0) for arm in (parent, child))
        change = improving(before, after, analysis) * (after - before)
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
    return Flips(better, worse, _flips(parent, child, seeds, best), _flips(parent, child, seeds, worst))


def improving(before: np.ndarray, after: np.ndarray, analysis: Analysis) -> int:
    """Whether a larger value of an item improves (1) or not (-1); before, after: values of a subset's items.

    Towards a target, the side on which the subset's mean lies says it.
    """
    if isinstance(analysis.direction, Target):
        return 1 if (before.mean() + after.mean()) / 2 < analysis.direction.target else -1
    return 1 if analysis.direction == "max" else -1


def _flips(parent: Arm, child: Arm, seeds: Sequence[int], found: Sequence[_Found]) -> tuple[Flip, ...]:
    """The items with their texts in the seed in which each changed most; each file is read once."""
    chosen = []
    for change, subset, at, before, after in found:
        by_seed = [
            (float(child.runs[s][subset].values[at] - parent.runs[s][subset].values[at]) * np.sign(after - before), -s)
            for s in seeds
        ]
        chosen.append((change, subset, at, before, after, -max(by_seed)[1]))
    words: dict[tuple[int, str], tuple[dict[str, ItemText], dict[str, ItemText]]] = {}
    for seed, subset in dict.fromkeys((seed, subset) for _, subset, _, _, _, seed in chosen):
        sheets = parent.runs[seed][subset], child.runs[seed][subset]
        items = [str(sheets[0].items[at]) for _, s, at, _, _, of in chosen if (of, s) == (seed, subset)]
        words[seed, subset] = (sheets[0].texts(items), sheets[1].texts(items))
    nothing, flips = ItemText(), []
    for change, subset, at, before, after, seed in chosen:
        item = str(child.runs[seed][subset].items[at])
        ours, theirs = (side.get(item, nothing) for side in words[seed, subset])
        flips.append(Flip(subset, item, before, after, change, seed, theirs, ours.answered))
    return tuple(flips)
