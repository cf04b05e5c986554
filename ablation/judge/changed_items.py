"""Finds the items that changed most between two variants; a single item is an example to read, not a finding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ablation.config.study_schema import Analysis, Target
from ablation.judge.measurements import Column, Measurements
from ablation.judge.significance import Array

POOL = 200  # items of a subset that are kept, in each direction
_EQUAL = 1e-9  # of a subset's largest change: what differs by less is equal but for rounding


class Beside(NamedTuple):
    """The values of one item in two runs with the same seed, or in each variant's n-th run if seeds are independent."""

    parent_seed: int
    child_seed: int
    before: float
    after: float


@dataclass(frozen=True)
class ChangedItem:
    """One item, with its means over the runs of both variants and its values in each pair of runs."""

    subset: str
    item: str
    before: float
    after: float
    change: float  # after minus before in the direction's sense: positive is an improvement
    agreeing: int  # pairs of runs in which it changed as its mean did
    against: int  # pairs in which it changed the other way
    values: tuple[Beside, ...]
    rank: float  # of the change, without rounding errors: negative, the largest change first

    @property
    def order(self) -> tuple[float, int, str, str]:
        """Sort key: the largest change comes first; of equal changes, the one with the same sign in more seeds."""
        return self.rank, self.against - self.agreeing, self.subset, self.item

    def telling(self) -> list[Beside]:
        """Return the item's values by pair of runs, the largest change in the item's direction first."""
        direction = np.sign(self.after - self.before)
        return sorted(self.values, key=lambda pair: (-direction * (pair.after - pair.before), pair.parent_seed))


@dataclass(frozen=True)
class ChangedItems:
    """The items that changed between two variants.

    gained, lost: the largest change first, at most POOL of each subset.
    """

    seeds: int
    better: int  # items that improved, on average over the runs
    worse: int
    gained: list[ChangedItem]
    lost: list[ChangedItem]

    def most(self, count: int) -> list[ChangedItem]:
        """Return the items with the largest changes, whether improvements or not."""
        return sorted([*self.gained, *self.lost], key=lambda changed: changed.order)[:count]


def find_changed_items(study: Measurements, parent: str, child: str, pool: int = POOL) -> ChangedItems:
    """Return the items that changed between two variants, over common seeds or, if seeds are independent, all runs."""
    known = study.values.keys() - study.duplicates - study.without
    seeds = [sorted(seed for seed in study.seeds(name) if (name, seed) in known) for name in (parent, child)]
    if study.design.paired:
        seeds = [[seed for seed in seeds[0] if seed in seeds[1]]] * 2
    pairs = list(zip(*seeds, strict=False))
    better = worse = 0
    gained: list[ChangedItem] = []
    lost: list[ChangedItem] = []
    for subset in study.analysis.subsets:
        groups = [
            [study.values[name, seed].get(subset) for seed in variant_seeds]
            for name, variant_seeds in zip((parent, child), seeds, strict=True)
        ]
        items, before, after = _aligned(*groups)
        if not len(items):
            continue
        sign = improving(before, after, study.analysis)
        by_pair = sign * (after[: len(pairs)] - before[: len(pairs)])
        means = before.mean(axis=0), after.mean(axis=0)
        change = sign * (means[1] - means[0])
        tiny = _EQUAL * max(float(np.abs(by_pair).max()), 1e-300)
        better += int((change > tiny).sum())
        worse += int((change < -tiny).sum())
        up, down = (by_pair > tiny).sum(axis=0), (by_pair < -tiny).sum(axis=0)
        rank = -np.round(np.abs(change) / tiny) * tiny
        for direction, found, agreeing, against in ((1, gained, up, down), (-1, lost, down, up)):
            order = np.lexsort((items, against - agreeing, rank))
            for at in [at for at in order.tolist() if direction * change[at] > tiny][:pool]:
                values = zip(pairs, before[: len(pairs), at].tolist(), after[: len(pairs), at].tolist(), strict=True)
                found.append(
                    ChangedItem(
                        subset,
                        str(items[at]),
                        float(means[0][at]),
                        float(means[1][at]),
                        float(change[at]),
                        int(agreeing[at]),
                        int(against[at]),
                        tuple(Beside(one, other, old, new) for (one, other), old, new in values),
                        float(rank[at]),
                    )
                )
    ordered = (sorted(found, key=lambda changed: changed.order) for found in (gained, lost))
    return ChangedItems(len(pairs), better, worse, *ordered)


def improving(before: Array, after: Array, analysis: Analysis) -> int:
    """Return 1 if a larger value of an item is an improvement, else -1.

    `before` and `after` are the values of a subset's items. With a target, this depends on the side on which the
    subset's mean lies.
    """
    if isinstance(analysis.direction, Target):
        return 1 if (before.mean() + after.mean()) / 2 < analysis.direction.target else -1
    return 1 if analysis.direction == "max" else -1


def _aligned(parents: Sequence[Column | None], children: Sequence[Column | None]) -> tuple[np.ndarray, Array, Array]:
    """Return the items that all runs have, and both groups' values [runs, items]; no items if a run lacks a subset.

    Items with a value that is not finite are left out.
    """
    runs = [run for run in (*parents, *children) if run is not None]
    if not parents or not children or len(runs) < len(parents) + len(children):
        return np.array([]), np.empty((0, 0)), np.empty((0, 0))
    index = runs[0].index
    for run in runs:
        index = index if run.index.equals(index) else index.intersection(run.index)
    values = np.array(
        [run.values if run.index.equals(index) else run.values[run.index.get_indexer(index)] for run in runs]
    )
    finite = np.isfinite(values).all(axis=0)
    values = values[:, finite]
    return index.to_numpy(dtype=str)[finite], values[: len(parents)], values[len(parents) :]
