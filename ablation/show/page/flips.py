"""The items that changed between a parent and its child, the most telling first.

An item's change in a seed is child minus parent, turned so that a positive number is an improvement. An item that
changed the same way in more seeds tells more than one with a larger change in fewer: seeds are what may repeat.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ablation.judge.compare.comparison import improving
from ablation.judge.measurements import Measurements

POOL = 200  # items of a subset, in each direction, among which those with words are looked for


@dataclass(frozen=True)
class Flip:
    """One item: its values (seed, parent's, child's) in every seed, and its mean change."""

    subset: str
    item: str
    values: tuple[tuple[int, float, float], ...]
    change: float  # mean over the seeds; positive is an improvement
    agreeing: int  # seeds in which it changed in the direction of the mean
    against: int  # seeds in which it changed in the other
    rank: int  # among those of its subset and direction, from 0

    @property
    def order(self) -> tuple[int, float, str, str]:
        """The most telling first: changed in most seeds, then by the largest change."""
        return (self.against - self.agreeing, -abs(self.change), self.subset, self.item)

    def telling_seeds(self, sign: int) -> list[int]:
        """The seeds, the largest change in the item's direction first; `sign`: as in `Flips.signs`."""
        direction = sign if self.change > 0 else -sign
        return [seed for seed, _, _ in sorted(self.values, key=lambda v: (-direction * (v[2] - v[1]), v[0]))]


@dataclass(frozen=True)
class Flips:
    """What changed between two variants: how many items improved and got worse on average, and the most telling."""

    seeds: int
    better: int
    worse: int
    gained: list[Flip]
    lost: list[Flip]
    signs: dict[str, int]  # by subset: whether a larger value is an improvement


def find_flips(study: Measurements, parent: str, child: str) -> Flips:
    """Compare two variants item by item, over the seeds that both have."""
    seeds = [
        seed
        for seed in study.in_order_added(study.seeds(parent) & study.seeds(child))
        if _both(study, parent, child, seed)
    ]
    better = worse = 0
    gained: list[Flip] = []
    lost: list[Flip] = []
    signs: dict[str, int] = {}
    for subset in study.analysis.subsets:
        sides = [[study.values[variant, seed].get(subset) for seed in seeds] for variant in (parent, child)]
        items, before, after = _aligned(*sides)
        if not len(items):
            continue
        sign = signs[subset] = improving(before, after, study.analysis)
        change = sign * (after - before)
        tiny = 1e-9 * max(float(np.abs(change).max()), 1e-300)
        mean = change.mean(axis=0)
        better += int((mean > tiny).sum())
        worse += int((mean < -tiny).sum())
        up, down = (change > tiny).sum(axis=0), (change < -tiny).sum(axis=0)
        for direction, found in ((1, gained), (-1, lost)):
            net = direction * (up - down)
            order = np.lexsort((items, -np.abs(mean), -net))
            chosen = [at for at in order.tolist() if direction * mean[at] > tiny][:POOL]
            for rank, at in enumerate(chosen):
                values = tuple(zip(seeds, before[:, at].tolist(), after[:, at].tolist(), strict=True))
                agreeing, against = (up, down) if direction > 0 else (down, up)
                found.append(
                    Flip(subset, str(items[at]), values, float(mean[at]), int(agreeing[at]), int(against[at]), rank)
                )
    return Flips(len(seeds), better, worse, gained, lost, signs)


def _both(study: Measurements, parent: str, child: str, seed: int) -> bool:
    return all(
        (variant, seed) in study.values and (variant, seed) not in study.duplicates for variant in (parent, child)
    )


def _aligned(
    parents: list[pd.Series | None], children: list[pd.Series | None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the items that all runs have, and the values of both sides, [seeds, items]."""
    runs = [series for series in (*parents, *children) if series is not None]
    if not runs or len(runs) < 2 * len(parents):
        return np.array([]), np.empty((0, 0)), np.empty((0, 0))
    index = runs[0].index
    for series in runs[1:]:
        if not series.index.equals(index):
            index = index.intersection(series.index)
    values = np.array(
        [series.to_numpy() if series.index.equals(index) else series[index].to_numpy() for series in runs]
    )
    finite = np.isfinite(values).all(axis=0)
    values = values[:, finite]
    return index.to_numpy(dtype=str)[finite], values[: len(parents)], values[len(parents) :]
