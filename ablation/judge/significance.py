"""Computes intervals and p-values of an effect whose variance has a part of the seeds and a part of the items.

Formulas are in docs/explanation/statistics.md. `scipy.special` has the functions of `scipy.stats`, which takes 0.6 s
longer to import.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import ceil, e, inf, isinf, isnan, log, log2, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ablation.config.study_schema import Analysis

Array = NDArray[np.float64]

EXACT_FLIPS = 16  # seeds up to which all 2^n sign flips are counted
_MOST_SIGNS = 4_000_000  # that are held at once
_NOT_ZERO = 1e-9  # of the largest: smaller units count as none
_MOST_PARTS, _MOST_STEPS = 60, 1 << 20  # of the smallest unit; of all units together
_LEAST_BY_SUMS = 1e-10  # below which rounding would show in a sum of chances
_LEAST_BY_DRAWS, _MANY_UNITS = 1e-3, 400  # below which, and beyond how many units, random flips are not asked
LEAST_LOG_P = -80.0  # smaller p-values are not distinguished
_APART = (log(2.0), log(5.0))  # ratios of the two t up to which their mean holds the level, and from which on not


@dataclass(frozen=True)
class GroupNoise:
    """The noise of the weighted mean of one group, whose runs no other group shares."""

    variance: float  # of the weighted mean
    df: float
    runs: int
    weight: float = 1.0


@dataclass(frozen=True)
class Noise:
    """The variances of an effect over seeds and over items, each with its degrees of freedom.

    With infinite degrees of freedom, the variance is known, and quantiles are those of a normal distribution.
    """

    seed_variance: float  # of the mean over seeds; NaN with one seed
    seed_df: float  # seeds - 1, and more if it is moderated; 0 if the variance is not known, as with one seed
    item_variance: float  # of the mean, from the items that all seeds share
    item_df: float = inf
    unseen: float = 0.0  # what a changed cluster that is not among the sampled ones would add to the effect
    residual: float = 0.0  # of the mean, by item and seed: what was subtracted to get `item_variance`
    groups: tuple[GroupNoise, ...] = ()  # of independent runs; `seed_variance` is the sum of their variances

    @classmethod
    def independent(cls, groups: Sequence[GroupNoise], item_variance: float = 0.0, item_df: float = inf) -> "Noise":
        """Return the noise of a contrast of groups whose runs are independent.

        Satterthwaite's degrees of freedom are too many for few and unequal numbers of runs, so they are limited to
        those of as many groups with the fewest runs.
        """
        variance = sum(group.variance for group in groups)
        least = min((group.df for group in groups), default=0.0)
        alone = len({group.df for group in groups}) < len(groups) and any(group.runs == 1 for group in groups)
        squares = sum(group.variance**2 / group.df for group in groups)
        df = min(variance**2 / squares if squares > 0 else inf, len(groups) * least)
        return cls(variance if groups else nan, least if alone else df, item_variance, item_df, groups=tuple(groups))

    @property
    def by_group(self) -> tuple[tuple[float, float], ...]:
        """Parts (variance, df) of the seed variance.

        There is one part for each group if the groups have different numbers of runs, of which the smallest is 2, else
        one for all.
        """
        runs = {group.runs for group in self.groups}
        if len(runs) > 1 and min(runs) == 2:
            return tuple((group.variance, group.df) for group in self.groups)
        return ((self.seed_variance, self.seed_df),)

    def after(self, runs: int, now: int) -> "Noise":
        """Return the noise with `runs` runs in each group instead of `now`, if further runs vary as these do."""
        if not self.groups:
            fewer = now / runs
            variance, residual = self.seed_variance * fewer, self.residual * fewer
            return replace(self, seed_variance=variance, seed_df=self.seed_df + runs - now, residual=residual)
        groups = [
            replace(group, variance=group.variance * group.runs / runs, df=group.df + runs - group.runs, runs=runs)
            for group in self.groups
        ]
        then = Noise.independent(groups, self.item_variance, self.item_df)
        fewer = then.seed_variance / self.seed_variance if self.seed_variance > 0 else now / runs
        return replace(then, unseen=self.unseen, residual=self.residual * fewer)

    @property
    def seeds_known(self) -> bool:
        """Whether the noise over seeds could be estimated."""
        return self.seed_df > 0

    @property
    def total(self) -> float:
        """Variance of the effect."""
        return self.seed_variance + self.item_variance

    def hidden(self, alpha: float) -> float:
        """Return the difference that `-ln(alpha / 2)` clusters can make, which may have gone unseen at level alpha."""
        return 0.0 if self.unseen == 0 else -self.unseen * float(np.log(alpha / 2))

    def allowance(self, alpha: float, sides: int = 2) -> float:
        """Return the allowance for unseen changes and few items, which is added to the square of the critical effect.

        The variance over items is a difference of two mean squares, of which only the first has few degrees of freedom:
        the first gets the quantile of Student's t, the second that of the normal.
        """
        by_item, least = student_isf(self.item_df, alpha / sides), normal_isf(alpha / sides)
        return self.hidden(alpha) ** 2 + self.residual * (by_item**2 - least**2)


def normal_isf(probability: float) -> float:
    """Return the number that a standard normal exceeds with this probability."""
    return -float(special.ndtri(probability))


def student_isf(df: float, probability: float) -> float:
    """Return the number that Student's t exceeds with this probability; for infinite `df`, the number for a normal."""
    return normal_isf(probability) if isinf(df) else -float(special.stdtrit(df, probability))


def half_width(noise: Noise, alpha: float) -> float:
    """Return half the width of the interval at 1 - alpha, from Cochran and Cox's critical value and `Noise.allowance`.

    t = (v_seed t_seed + v_item t_item) / (v_seed + v_item) (Experimental Designs, 2nd ed., 1957, section 4.14), each t
    of its variance's degrees of freedom. Satterthwaite's degrees of freedom cover 87% with two seeds; this covers
    93-98%. With one seed, item noise only.
    """
    by_item = student_isf(noise.item_df, alpha / 2)
    added = noise.allowance(alpha)
    if not noise.seeds_known:
        return float(np.sqrt(by_item**2 * noise.item_variance + added))
    if noise.total <= 0:
        return float(np.sqrt(added))
    by_seed = sum(variance * student_isf(df, alpha / 2) for variance, df in noise.by_group)
    seen = (by_seed + noise.item_variance * by_item) / float(np.sqrt(noise.total))
    return float(np.sqrt(seen**2 + added))


@lru_cache(maxsize=1024)  # an estimate asks again for each of its intervals
def p_value(effect: float, noise: Noise, sides: int = 2) -> float:
    """Return the p-value of no effect: the level at which `effect**2 == critical_square`; NaN with one seed.

    With `sides=1`, the p-value of an effect of at most 0; the allowance for unseen changes stays two-sided.
    """
    if not noise.seeds_known:
        return float("nan")
    # Runs that do not differ at all, or by the same amount everywhere.
    if noise.total <= 0 and noise.unseen == 0 and noise.residual == 0:
        return 1.0 if effect == 0 else 0.0
    if effect == 0 or (sides == 1 and effect < 0):
        return 1.0
    square, most = effect**2, 0.0 if sides == 2 else float(np.log(0.5))

    def missing(log_p: float) -> float:  # how much of the critical square is missing; between -1/2 and 1/2, rising
        critical = critical_square(noise, float(np.exp(log_p)), sides=sides)
        return 0.5 - float(critical / (critical + square))

    if missing(most) <= 0:
        return 1.0  # what may have gone unseen is larger, at every level
    if missing(LEAST_LOG_P) >= 0:
        return float(np.exp(LEAST_LOG_P))
    return float(np.exp(brentq(missing, LEAST_LOG_P, most, xtol=1e-15, rtol=1e-15)))


def critical_square(noise: Noise, alpha: float, seed_ratio: Any = 1.0, item_ratio: Any = 1.0, *, sides: int = 2) -> Any:
    """Return the square that an effect must reach at level alpha; the ratios, perhaps arrays, scale the variances.

    It is (v_seed + v_item) times m^(2 / q), with m the mean of t_seed^q and t_item^q weighted by the variances. With
    q = 1 this is Cochran and Cox's critical value; with q = 2 Banerjee's (1960, Sankhya 22, 357-358), which keeps every
    level but has less power. The former errs too often if the two t are far apart, as at the small levels of
    corrections and with few degrees of freedom. So q rises from 1 to 2 as one t rises from two to five times the other:
    the error is at most 1.06 times the level, for levels from 0.05 to 0.0002, degrees of freedom from 1 on and every
    ratio (numerically; docs/explanation/statistics.md).
    """
    by_item = student_isf(noise.item_df, alpha / sides)
    squares = sum(variance * student_isf(df, alpha / sides) ** 2 for variance, df in noise.by_group)
    by_seed = float(np.sqrt(squares / noise.seed_variance)) if noise.seed_variance > 0 else by_item
    seeds, items = noise.seed_variance * seed_ratio, noise.item_variance * item_ratio
    apart = abs(log(by_seed / by_item)) if min(by_seed, by_item) > 0 else 0.0
    power = float(np.interp(apart, _APART, (1, 2)))
    total = np.maximum(seeds + items, np.finfo(float).tiny)
    seen = total * ((seeds * by_seed**power + items * by_item**power) / total) ** (2 / power)
    return seen + noise.allowance(alpha, sides)


def sign_flip(differences: Sequence[float] | Array) -> float:
    """Return the two-sided sign-flip p of a sum of differences, one per seed, with the items taken as fixed.

    It counts all 2^n flips up to 16 differences, else 65,536 random ones, among them the observed one.
    """
    observed = np.asarray(differences, dtype=float)
    least = abs(observed.sum()) - 1e-12 * np.abs(observed).sum()
    blocks = [np.abs(signs @ observed) >= least for signs in _signs(len(observed))]
    return float(sum(map(np.sum, blocks)) / sum(map(len, blocks)))


def flip_p(values: Sequence[float] | Array) -> float:
    """Return the two-sided sign-flip p of a sum of units [units], for any number of units.

    It is exact if all units that are not 0 have one size (McNemar's test, a binomial), for up to 16 units (by
    counting), and for multiples of one step (by the characteristic function). Otherwise it is that of 65,536 random
    flips or, for small p or many units, Lugannani and Rice's (1980, Advances in Applied Probability 12, 475-490)
    approximation of the tail.
    """
    units = np.asarray(values, dtype=float)
    size = np.abs(units)
    units, size = (array[size > _NOT_ZERO * size.max(initial=0.0)] for array in (units, size))
    count = len(units)
    if not count:
        return 1.0
    if np.ptp(size) <= _NOT_ZERO * size.max():
        fewer = min(int((units > 0).sum()), int((units < 0).sum()))
        return min(1.0, 2 * float(special.bdtr(fewer, count, 0.5)))
    if count <= EXACT_FLIPS:
        return sign_flip(units)
    if (steps := _in_steps(size)) is not None:
        p = _lattice_tail(steps, int(np.abs(np.rint(units / size * steps).sum())))
        if p > _LEAST_BY_SUMS:
            return p
    if count <= _MANY_UNITS and (p := sign_flip(units)) > _LEAST_BY_DRAWS:
        return p
    return _tail(size, abs(float(units.sum())))


def _in_steps(size: Array) -> NDArray[np.int64] | None:
    """Return the sizes as multiples of a common step; None if they have no common step that is large enough."""
    least = size.min()
    for divisor in range(1, _MOST_PARTS + 1):
        steps = size * (divisor / least)
        rounded = np.rint(steps)
        if (np.abs(steps - rounded) < 1e-6 * divisor).all() and rounded.sum() < _MOST_STEPS:
            return rounded.astype(np.int64)
    return None


def _lattice_tail(steps: NDArray[np.int64], observed: int) -> float:
    """Return the exact probability that `abs(sum(±steps)) >= observed`, by the characteristic function of the sum."""
    total = int(steps.sum())
    length = 2 * total + 1
    angle = 2 * np.pi * np.arange(length) / length
    transform = np.ones(length)
    for step, count in zip(*np.unique(steps, return_counts=True), strict=True):
        transform *= np.cos(step * angle) ** count
    chances = np.fft.ifft(transform).real  # of the sums 0, 1, .., total, -total, .., -1
    return min(1.0, 2 * float(chances[observed : total + 1].sum())) if observed else 1.0


def _tail(size: Array, observed: float) -> float:
    """Return an approximation of the probability that `abs(sum(±sizes)) >= observed` (`flip_p` names the source)."""
    size, total = size / size.max(), observed / size.max()
    if total >= size.sum() * (1 - 1e-12):
        return 2.0 ** (1 - len(size))

    def slope(at: float) -> float:
        return float((size * np.tanh(size * at)).sum()) - total

    high = 1.0
    while slope(high) < 0:
        high *= 2
    at = float(brentq(slope, 0.0, high, xtol=1e-13))
    cumulant = float((np.logaddexp(size * at, -size * at) - log(2)).sum())
    signed = float(np.sqrt(max(2 * (at * total - cumulant), 0.0)))
    with np.errstate(over="ignore"):  # far out, a large unit adds nothing
        wald = at * float(np.sqrt((size**2 / np.cosh(size * at) ** 2).sum()))
    if signed < 1e-3 or wald <= 0:
        return 2 * float(special.ndtr(-signed))
    density = float(np.exp(-(signed**2) / 2) / np.sqrt(2 * np.pi))
    return float(np.clip(2 * (special.ndtr(-signed) + density * (1 / wald - 1 / signed)), 0.0, 1.0))


def _signs(count: int) -> Iterator[Array]:
    """Yield blocks [flips, count] of signs: all flips of at most 16 values, or random flips of more values."""
    exact, generator, rows = count <= EXACT_FLIPS, np.random.default_rng(0), max(1, _MOST_SIGNS // count)
    total = 2 ** min(count, EXACT_FLIPS)
    for start in range(0, total, rows):
        numbers = np.arange(start, min(start + rows, total))
        if exact:  # the bits of a number are its signs
            yield np.where(numbers[:, None] >> np.arange(count)[::-1] & 1, -1.0, 1.0)
            continue
        signs = generator.choice((1.0, -1.0), (len(numbers), count))
        if start == 0:
            signs[0] = 1.0
        yield signs


def skewed_p(units: Array) -> float:
    """Return the two-sided p of a sum of units [units] by Student's t of Hall's cubic transformation.

    It allows for skewed units, such as differences of losses (Hall, 1992, J R Stat Soc B 54, 221-228, equation 2.5).
    """
    count, away = len(units), units - units.mean()
    spread = float(np.sqrt(away @ away / count))
    if spread == 0:
        return 1.0 if units.sum() == 0 else 0.0
    skewness = float(np.mean(away**3)) / spread**3
    mean = float(units.mean()) / spread * np.sqrt(1 - 1 / count)
    t = mean + skewness * mean**2 / 3 + skewness**2 * mean**3 / 27 + skewness / (6 * count)
    return float(2 * special.stdtr(count - 1, -abs(t) * np.sqrt(count)))


def holm(p: Sequence[float]) -> Array:
    """Return Holm's step-down adjusted p-values (Scandinavian Journal of Statistics 6, 1979); NaN is not a test."""
    raw = np.asarray(p, dtype=float)
    adjusted = np.full(raw.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(raw))
    order = tested[np.argsort(raw[tested], kind="stable")]
    steps = raw[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> Array:
    """Return Benjamini and Hochberg's step-up adjusted p-values (JRSS B 57, 289-300, 1995).

    Among those of at most alpha, the expected share of false ones is at most alpha.
    """
    raw = np.asarray(p, dtype=float)
    adjusted, order = np.empty_like(raw), np.argsort(raw, kind="stable")[::-1]
    steps = raw[order] * len(order) / np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum.accumulate(np.minimum(steps, 1.0))
    return adjusted


def interim_weights(interims: Sequence[int]) -> dict[int, float]:
    """Return {number of seeds: share of alpha} for interim analyses, with a sum of 1; {} without interim analyses.

    Alpha is spent along ln(1 + (e - 1) t) at the fraction t of the most seeds (Lan and DeMets, 1983, Biometrika 70,
    659-663): evenly, so that a large effect is found early. Their O'Brien-Fleming form leaves an interim analysis at 3
    of 10 seeds a 150th of alpha, which a t of two degrees of freedom never reaches. Each interim analysis is tested at
    its own share, a weighted Bonferroni rule that is valid under any dependence between them. Lan and DeMets' recursion
    would use alpha better, but only for independent normal increments (docs/explanation/statistics.md).
    """
    spent = [0.0, *(log(1 + (e - 1) * (interim / interims[-1])) for interim in interims)]
    return {interim: b - a for interim, (a, b) in zip(interims, pairwise(spent), strict=True)}


def sequential_p(p_by_interim: Mapping[int, float], weights: Mapping[int, float]) -> float:
    """Return the smallest `p / weight` of the interim analyses, but at most 1; NaN without an interim analysis."""
    taken = [
        p_by_interim[interim] / weights[interim]
        for interim in p_by_interim
        if weights[interim] > 0 and not isnan(p_by_interim[interim])
    ]
    return min(1.0, *taken) if taken else float("nan")


def max_undetected_share(seeds: int, alpha: float) -> float:
    """Return the largest share of seeds that may behave differently although none of the runs did.

    The confidence is 1 - alpha. If a share q of seeds behaves differently (a collapse, an early stop), none of S does
    with probability (1 - q)^S; the bound is the q at which this is alpha (Clopper and Pearson, 1934, Biometrika 26,
    404-413).
    """
    return 1 - float(alpha ** (1 / seeds))


def seeds_for(rare: float, alpha: float) -> int:
    """Return the number of seeds that rule out, at level alpha, that more than a share `rare` behave differently."""
    return ceil(log(alpha) / log(1 - rare) - 1e-9)


def units_for(level: float) -> int:
    """Return the smallest number of clusters of items with which a sign-flip test can reach a level."""
    return ceil(1 - log2(level) - 1e-9)


def enough_seeds_for_equivalence(seeds: int, analysis: Analysis) -> bool:
    """Return whether this many seeds are enough for the verdict `equivalent` of a plan; checkpoints need only one.

    Enough seeds bound the share of seeds that may behave differently by the plan's `rare`.
    """
    return analysis.claim == "checkpoints" or max_undetected_share(seeds, analysis.alpha) <= analysis.rare


def brentq(function: Callable[[float], float], a: float, b: float, *, xtol: float, rtol: float = 2.0**-50) -> float:
    """Return the root of a function between `a` and `b`, bit for bit like `scipy.optimize.brentq`.

    The method is that of Brent (1973, chapter 4). Verdicts need nothing else of scipy.optimize, whose import takes a
    sixth of the time to compare two small files.

    Raises:
        ValueError: the signs at `a` and `b` are the same.
    """
    before, current, other = float(a), float(b), 0.0
    f_before, f_here, f_other = float(function(before)), float(function(current)), 0.0
    if f_before == 0 or f_here == 0:
        return before if f_before == 0 else current
    if (f_before < 0) == (f_here < 0):
        raise ValueError("f(a) and f(b) must have different signs")
    step_before = step = 0.0
    for _ in range(100):
        if f_before != 0 and f_here != 0 and (f_before < 0) != (f_here < 0):
            other, f_other, step_before = before, f_before, current - before
            step = step_before
        if abs(f_other) < abs(f_here):
            before, current, other = current, other, current
            f_before, f_here, f_other = f_here, f_other, f_here
        delta, half = (xtol + rtol * abs(current)) / 2, (other - current) / 2
        if f_here == 0 or abs(half) < delta:
            return current
        tried = inf
        if abs(step_before) > delta and abs(f_here) < abs(f_before):
            if before == other:  # the secant
                tried = -f_here * (current - before) / (f_here - f_before)
            else:
                slope, other_slope = (f_before - f_here) / (before - current), (f_other - f_here) / (other - current)
                if below := other_slope * slope * (f_other - f_before):
                    tried = -f_here * (f_other * other_slope - f_before * slope) / below
        if 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - delta):
            step_before, step = step, tried
        else:
            step_before = step = half
        before, f_before = current, f_here
        current += step if abs(step) > delta else delta if half > 0 else -delta
        f_here = float(function(current))
    raise RuntimeError("no convergence after 100 steps")
