"""Estimates from a pilot's noise how many seeds and items detect an effect, and what they cost.

The pilot's variances are estimates. So the stated power is the mean over possible true seed variances (the estimate
times df / chi2_df, as in `ablation.judge.budget`), and plans have this power on average.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np
import pandas as pd

from ablation.judge.budget import Prices
from ablation.judge.comparisons import Comparison
from ablation.judge.measure import Measured
from ablation.judge.measurements import Measurements, comparable
from ablation.judge.moderation import FEWEST_SEEDS
from ablation.judge.outcomes import Outcome, outcome_values
from ablation.judge.power import minimal_detectable_effect, power, variance_ratios
from ablation.judge.significance import Noise, brentq

MOST_SEEDS = 200
MOST_ITEMS = 1_000_000
_TRUTHS = 12  # quantiles of what the true seed variance may be
_ESTIMATES = 100  # quantiles of what the study may estimate, for each of these
_OFTEN = 400  # quantiles; the outer tenths bound the detectable effect
Level = Callable[[int], float]  # the level of the test at a number of seeds


@dataclass(frozen=True)
class Pilot:
    """The noise of one comparison's difference, from which other sizes of a study are planned."""

    name: str
    seeds: int
    items: int
    variance: float  # between seeds, of one seed's difference
    sampling: float  # the part of `variance` that shrinks with the number of items: noise by seed and item
    shared: float  # variance of the mean from the items that all seeds share
    df: float = inf  # of `variance`; infinite if the noise is stated
    prior_df: float = 0.0  # degrees of freedom from a study's other variants
    item_df: float = inf
    unseen: float = 0.0
    groups: int = 1  # of runs that vary separately: 2 if the runs of both variants are independent
    samples: int = 1  # of an item, at each of the checkpoints
    checkpoints: int = 1  # over which a run's values are averaged
    drawn: float = 0.0  # the part of `sampling` that shrinks with samples and checkpoints
    between: float = 0.0  # the part of `variance` that shrinks with checkpoints alone
    planned: tuple[int, int] | None = None  # samples and checkpoints of the planned study; None: as here

    def evaluated(self, samples: int, checkpoints: int, drawn: float, between: float) -> "Pilot":
        """Return the pilot with the parts of its variance that samples (`drawn`) and checkpoints (`between`) cause."""
        drawn = min(drawn, self.sampling)
        between = min(between, self.variance - self.sampling)
        return replace(self, samples=samples, checkpoints=checkpoints, drawn=drawn, between=between)

    def at(self, samples: int, checkpoints: int) -> "Pilot":
        """Return the pilot for a study with this many samples per item and averaged checkpoints."""
        return replace(self, planned=(samples, checkpoints))

    @property
    def ratios(self) -> list[float]:
        """Equally likely values of the true variance between seeds, in units of the estimate."""
        return (1 / variance_ratios(self.df, _TRUTHS)).tolist()

    def clusters(self, items: int) -> float:
        """Return how many independent items are worth as much as this many items, according to the pilot."""
        return (self.item_df + 1) * items / self.items

    def noise(self, seeds: int, items: int, ratio: float = 1.0) -> Noise:
        """Return the noise of a study with this many seeds and items.

        `ratio` is the true variance between seeds divided by the estimate.
        """
        fewer = self.items / items
        samples, checkpoints = self.planned or (self.samples, self.checkpoints)
        drawn = self.drawn * self.samples * self.checkpoints / (samples * checkpoints)
        sampling = (self.sampling - self.drawn + drawn) * fewer
        fixed, between = self.sampling + self.between, self.between * self.checkpoints / checkpoints
        variance = max(self.variance * ratio, fixed) - fixed + sampling + between
        prior = self.prior_df if seeds >= FEWEST_SEEDS else 0.0
        item_df = self.clusters(items) - 1
        shared, unseen, residual = self.shared * fewer, self.unseen * fewer, sampling / seeds
        df = self.groups * (seeds - 1) + prior if seeds > 1 else 1.0  # of one run each only the items are drawn
        return Noise(variance / seeds, df, shared, item_df, unseen, residual)

    def power(self, effect: float, seeds: int, items: int, level: float) -> float:
        """Return the probability that an effect is detected, averaged over possible true variances."""
        noises = (self.noise(seeds, items, ratio) for ratio in self.ratios)
        return float(np.mean([power(effect, noise, level, _ESTIMATES) for noise in noises]))


def split(comparison: Measured) -> Pilot:
    """Return the pilot of a judged comparison, which has at least two seeds."""
    assert comparison.estimate is not None
    noise, seeds = comparison.estimate.verdict_noise, comparison.seeds
    variance = sum(group.variance * group.runs for group in noise.groups) or noise.seed_variance * seeds
    prior = noise.seed_df - comparison.estimate.own_df
    return Pilot(
        name=f"{comparison.parent} -> {comparison.child}",
        seeds=seeds,
        items=comparison.items,
        variance=variance,
        sampling=min(noise.residual * seeds, variance),
        shared=noise.item_variance,
        df=noise.seed_df,
        prior_df=prior,
        item_df=noise.item_df,
        unseen=noise.unseen,
        groups=max(len(noise.groups), 1),
    )


def sampling_variance(study: Measurements, comparison: Comparison) -> float | None:
    """Return the part of the variance of one seed's difference that independent samples cause.

    A share v of right samples has the variance v (1 - v) / (samples - 1). None if the number of samples is unknown, 1,
    or different in the two groups, or if the values are not such shares.
    """
    samples = study.samples.get(comparison.child, 1)
    if samples < 2 or samples != study.samples.get(comparison.parent):
        return None
    variance = 0.0
    for group in comparable(study, [comparison.parent, comparison.child]).groups:
        for values in group.values:
            if outcome_values(values.ravel(), samples, Outcome("pass", 1))[1] is not None:
                return None
            variance += float((values * (1 - values)).mean()) / (samples - 1) / values.shape[-1]
    return variance / len(study.analysis.subsets) ** 2


def detectable(pilot: Pilot, seeds: int, items: int, level: float, wanted: float) -> tuple[float, float, float]:
    """Return (effect, low, high): the smallest effect that is detected with probability `wanted`.

    `low` and `high` are the effects for the 10% and the 90% quantile of the true noise.
    """
    low, high = (
        minimal_detectable_effect(pilot.noise(seeds, items, float(ratio)), level, wanted)
        for ratio in 1 / np.quantile(variance_ratios(pilot.df, _OFTEN), [0.9, 0.1])
    )
    if low == high:
        return low, low, high

    def excess(effect: float) -> float:
        return pilot.power(effect, seeds, items, level) - wanted

    most = high
    while excess(most) < 0:
        most *= 2
    return float(brentq(excess, low / 4, most, xtol=1e-4 * high)), low, high


def fewest_seeds(pilot: Pilot, effect: float, items: int, level: Level, wanted: float) -> int | None:
    """Return the fewest seeds that detect an effect with probability `wanted`; None if `MOST_SEEDS` do not."""
    low, high = 1, MOST_SEEDS
    if pilot.power(effect, high, items, level(high)) < wanted:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = pilot.power(effect, middle, items, level(middle)) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def fewest_items(pilot: Pilot, effect: float, seeds: int, level: float, wanted: float) -> int | None:
    """Return the fewest items, to two digits, that detect an effect with these seeds; None if `MOST_ITEMS` do not."""
    powers = (10**digits for digits in range(1, 6))
    counts = [step * power for power in powers for step in range(10, 100)]
    counts = [count for count in counts if pilot.items <= count <= MOST_ITEMS]
    place = bisect_left(counts, True, key=lambda items: pilot.power(effect, seeds, items, level) >= wanted)
    return counts[place] if place < len(counts) else None


Evaluated = tuple[int, int, int]  # items, samples of an item, averaged checkpoints


@dataclass(frozen=True)
class Cost:
    """Device-hours of a study's seeded stages; the hours of the last stage, the evaluation, scale with its size.

    If runs have a single stage, its share of evaluation is unknown, and so is the cost of other evaluations.
    """

    prices: Prices
    last: frozenset[str]  # units of the last stage
    apart: bool  # whether runs have other seeded stages than the last one
    paid: Mapping[str, int]  # number of seeds that each unit has
    variants: frozenset[str]
    evaluated: Evaluated

    @classmethod
    def of(cls, stages: pd.DataFrame, last: str, variants: Iterable[str], evaluated: Evaluated) -> "Cost":
        """Return the cost from rows (variant, stage, key, hours, seed) of the seeded stages, in plan order."""
        prices, names = Prices.from_stages(stages), frozenset(variants)
        evaluations = frozenset(map(str, stages.loc[stages["stage"] == last, "key"]))
        counts = stages[stages["hours"] > 0].groupby("variant")["seed"].nunique()
        paid = prices.paid({str(name): int(n) for name, n in counts.items()})
        return cls(prices, evaluations, bool((stages["stage"] != last).any()), paid, names, evaluated)

    def hours(self, seeds: int, evaluated: Evaluated, *, all_of_it: bool) -> float | None:
        """Return the device-hours of `seeds` seeds with this evaluation, in all or still to run; None if unknown."""
        if not self.apart and evaluated != self.evaluated:
            return None
        hours = 0.0
        for unit in self.prices.units_of(self.variants):
            evaluates = unit in self.last
            again = all_of_it or (evaluates and evaluated != self.evaluated)
            left = seeds if again else max(seeds - self.paid.get(unit, 0), 0)
            size = prod(evaluated) / prod(self.evaluated) if evaluates else 1.0
            hours += left * self.prices.hours.get(unit, 0.0) * size
        return hours
