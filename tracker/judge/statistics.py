"""Effect of one edge: estimate, interval, p-value; and Holm's correction. Pure numpy; formulas in docs/statistics.md.

    contrast(values, weights, direction, confidence=0.95) -> Estimate     child minus parent, or another contrast
    p_value(effect, seed_variance, item_variance, seeds)                  two-sided, valid at every level
    sign_flip(differences) -> (p, smallest p)                             exact test over training seeds
    holm(p) -> adjusted p
    run_statistics(values, direction) -> [arms, seeds]                    what the tables show, as a gain

`values` is one array [arms, seeds, items] per subset: the same items for every arm and seed, the same seeds for every
arm. Items are crossed with seeds, not nested in them. A *gain* is the statistic in the direction's sense: larger is
better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]
Direction = str | dict[str, float]

REPLICATES = 2000
BOOTSTRAP_SEED = 20250301
EXACT_FLIPS = 16  # seeds up to which all 2^n sign flips are counted


@dataclass(frozen=True)
class Estimate:
    """A contrast of arms, in units of the statistic; positive is an improvement."""

    effect: float  # mean over seeds of the contrast of the runs' statistics: the difference of two table cells
    centre: float  # the same freed of the folding of seed-by-item noise at a target; equals effect for max and min
    low: float
    high: float
    p: float  # two-sided, unadjusted; NaN with one seed
    seed_variance: float  # of the mean over seeds; NaN with one seed
    item_variance: float  # of the mean, from the items that all seeds share
    seeds: int
    items: int
    item_p: float  # items alone, as if these very seeds were the population
    per_seed: tuple[float, ...]


def gain(means: Array, direction: Direction) -> Array:
    """Turn subset means into gains: the mean for max, minus the mean for min, minus the distance for a target."""
    if isinstance(direction, dict):
        return -np.abs(means - direction["target"])
    if direction not in ("max", "min"):
        raise ValueError(f"direction: {direction!r} is neither max, min nor {{target: x}}")
    return means if direction == "max" else -means


def subset_means(values: Sequence[Array]) -> Array:
    """[arms, seeds, subsets] from one [arms, seeds, items] array per subset."""
    return np.stack([subset.mean(axis=2) for subset in values], axis=2)


def run_statistics(values: Sequence[Array], direction: Direction) -> Array:
    """Gain of every run [arms, seeds]: mean over subsets of the gain of the subset's item mean."""
    return gain(subset_means(values), direction).mean(axis=2)


@lru_cache(maxsize=8)
def item_counts(sizes: tuple[int, ...], replicates: int, seed: int) -> tuple[Array, ...]:
    """How often each bootstrap replicate draws each item: one [replicates, items] array per subset, rows sum to
    items.
    """
    generator = np.random.default_rng([seed, *sizes])
    counts = []
    for size in sizes:
        drawn = generator.integers(0, size, (replicates, size)) + size * np.arange(replicates)[:, None]
        counts.append(np.bincount(drawn.ravel(), minlength=size * replicates).reshape(replicates, size).astype(float))
    return tuple(counts)


def resampled_deviations(values: Sequence[Array], replicates: int, seed: int) -> Array:
    """Deviation of the subset means [replicates, arms, seeds, subsets] when items are drawn again.

    One draw serves all arms and seeds, which all saw the same items. Scaled by sqrt(n / (n - 1)) so that the variance
    is the unbiased one (Rao and Wu, 1988, JASA 83, 231-241).
    """
    columns = []
    for subset, counts in zip(values, item_counts(tuple(v.shape[2] for v in values), replicates, seed), strict=True):
        arms, seeds, items = subset.shape
        centred = (subset - subset.mean(axis=2, keepdims=True)).reshape(arms * seeds, items)
        scale = np.sqrt(items / max(items - 1, 1)) / items
        columns.append((counts @ centred.T * scale).reshape(replicates, arms, seeds))
    return np.stack(columns, axis=3)


def unfolding(values: Sequence[Array], means: Array) -> Array:
    """Share [arms, subsets] of the seed-to-seed deviations of the subset means that is not seed-by-item noise, in [0,
    1].

    |mean - target| of a noisy mean is too large on average. Noise that differs from seed to seed can be told from true
    seed-to-seed spread by the items, so each arm's means are drawn together until their variance over seeds is the
    spread's own (constrained empirical Bayes: Louis, 1984, JASA 79, 393-398). Noise that seeds share stays, and
    widens the interval.
    """
    seeds = means.shape[1]
    if seeds < 2:
        return np.ones((means.shape[0], means.shape[2]))
    noise = np.empty((means.shape[0], means.shape[2]))
    for index, subset in enumerate(values):
        own = subset.var(axis=2, ddof=1).sum(axis=1)
        shared = (subset.sum(axis=1).var(axis=1, ddof=1) - own) / (seeds * (seeds - 1))
        noise[:, index] = np.maximum(own / seeds - shared, 0) / subset.shape[2]
    spread = means.var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(spread > 0, 1 - noise / spread, 0)
    return np.sqrt(np.clip(kept, 0, 1))


def draw_together(means: Array, share: Array) -> Array:
    """Means [..., arms, seeds, subsets] whose deviations from the mean over seeds are multiplied by `share`."""
    centre = means.mean(axis=-2, keepdims=True)
    return centre + share[:, None, :] * (means - centre)


def contrast(
    values: Sequence[Array],
    weights: Sequence[float],
    direction: Direction,
    *,
    confidence: float = 0.95,
    replicates: int = REPLICATES,
    seed: int = BOOTSTRAP_SEED,
) -> Estimate:
    """Estimate the weighted sum of arms, with a hierarchical bootstrap over training seeds and items.

    `weights`: one per arm; (1, -1) for child and parent. The seed stage draws seeds (child and parent together); its
    variance of a mean is known in closed form, s^2 / S after Rao and Wu's rescaling. The item stage draws items, the
    same for all arms and seeds; the covariance between seeds of what it yields is the noise that more seeds do not
    remove. Adding the two counts the seed-by-item residual once, where one joint bootstrap of crossed factors counts
    it three times (Owen, 2007, Annals of Applied Statistics 1, 386-411). With one seed the interval holds item noise
    only.
    """
    arms = np.asarray(weights, dtype=float)
    means = subset_means(values)
    if not np.isfinite(means).all():
        raise ValueError("an item value is not finite")
    folds = isinstance(direction, dict)
    share = unfolding(values, means) if folds else np.ones((means.shape[0], means.shape[2]))
    unfolded = draw_together(means, share)
    seeds, items = means.shape[1], sum(subset.shape[2] for subset in values)

    def of_gains(gains: Array) -> Array:
        return np.tensordot(gains.mean(axis=-1), arms, ([-2], [0]))  # [..., seeds]

    slopes = _slopes(unfolded, direction)
    per_seed = of_gains(gain(means, direction))
    centre = float(of_gains(gain(unfolded, direction)).mean())
    seed_variance = float("nan")
    if seeds > 1:
        # Seeds on both sides of the target may be noise around one side: the larger spread of the two readings counts.
        origin = direction["target"] if isinstance(direction, dict) else 0.0
        common = _slopes(means.mean(axis=1, keepdims=True), direction)
        spread = max(float(of_gains(sign * (means - origin)).var(ddof=1)) for sign in (slopes, common))
        seed_variance = (spread + _resolution(values)) / seeds

    deviations = resampled_deviations(values, replicates, seed)
    linear = of_gains(slopes * deviations)
    item_variance, whole = shared_variance(linear), float(linear.mean(axis=1).var())
    reach = np.full(replicates, centre)
    if folds:
        # A draw may cross the target, which the slopes do not know.
        folded = of_gains(gain(means + deviations, direction)) - per_seed
        item_variance = max(item_variance, shared_variance(folded))
        whole = max(whole, float(folded.mean(axis=1).var()))
        crosses = _slopes(draw_together(means + deviations, share), direction) != slopes
        if crosses.any(axis=(1, 2, 3)).mean() > (1 - confidence) / 2:
            reach = of_gains(gain(draw_together(means + deviations, share), direction)).mean(axis=1)

    effect = float(per_seed.mean())
    half = half_width(seed_variance, item_variance, seeds, 1 - confidence) + unseen(values, 1 - confidence)
    outer = np.quantile(reach, [(1 - confidence) / 2, (1 + confidence) / 2])
    crossing = _crossing(reach) if np.ptp(reach) > 0 else 0.0
    return Estimate(
        effect=effect,
        centre=centre,
        low=min(centre - half, effect, float(outer[0])),
        high=max(centre + half, effect, float(outer[1])),
        p=max(p_value(centre, seed_variance, item_variance, seeds), crossing) if seeds > 1 else float("nan"),
        seed_variance=seed_variance,
        item_variance=item_variance,
        seeds=seeds,
        items=items,
        item_p=max(p_value(centre, 0.0, whole, 2), crossing),
        per_seed=tuple(per_seed.tolist()),
    )


def _crossing(draws: Array) -> float:
    """Twice the share of draws on the smaller side of zero."""
    return min(1.0, 2 * min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0))))


def shared_variance(draws: Array) -> float:
    """Mean covariance between seeds of bootstrap draws [replicates, seeds], at least 0; the variance where seeds is
    1.
    """
    seeds = draws.shape[1]
    if seeds == 1:
        return float(draws[:, 0].var())
    total, own = draws.sum(axis=1).var(), draws.var(axis=0).sum()
    return max(float(total - own) / (seeds * (seeds - 1)), 0.0)


def half_width(seed_variance: float, item_variance: float, seeds: int, alpha: float) -> float:
    """Half width of the interval: Cochran and Cox's critical value for a sum of two variances.

    t = (v_seed t_(S-1) + v_item z) / (v_seed + v_item) (Experimental Designs, 2nd ed., 1957, section 4.14).
    Satterthwaite's degrees of freedom cover 87% with two seeds; this covers 93-98%.
    """
    normal = float(stats.norm.isf(alpha / 2))
    if seeds < 2:
        return normal * float(np.sqrt(item_variance))
    total = seed_variance + item_variance
    if total <= 0:
        return 0.0
    student = float(stats.t.isf(alpha / 2, seeds - 1))
    return (seed_variance * student + item_variance * normal) / float(np.sqrt(total))


def p_value(effect: float, seed_variance: float, item_variance: float, seeds: int) -> float:
    """Two-sided p of no effect: the level at which effect^2 = v_seed t_(S-1)^2 + v_item z^2; NaN with one seed.

    Banerjee (1960, Sankhya 22, 357-358) proves that the error of this rule is at most its level, for every level and
    every ratio of the variances. Holm's correction asks for small levels, where the interval's critical value would
    not do.
    """
    if seeds < 2:
        return float("nan")
    if seed_variance + item_variance <= 0:  # runs that do not differ at all, or by the same amount everywhere
        return 1.0 if effect == 0 else 0.0
    low, high = -80.0, 0.0  # of log p; rejection is monotone in it
    for _ in range(60):
        middle = (low + high) / 2
        if effect**2 >= critical_square(seed_variance, item_variance, seeds, float(np.exp(middle))):
            high = middle
        else:
            low = middle
    return float(np.exp(high))


def critical_square(seed_variance: Any, item_variance: Any, seeds: int, alpha: float) -> Any:
    """The square that an effect must reach at level alpha; variances may be arrays."""
    # scipy.stats' isf by its inner function: 50 times faster, and p_value calls it 60 times.
    student, normal = special.stdtrit(seeds - 1, alpha / 2), special.ndtri(alpha / 2)
    return seed_variance * student**2 + item_variance * normal**2


def sign_flip(differences: Sequence[float], *, draws: int = 1 << EXACT_FLIPS, seed: int = 0) -> tuple[float, float]:
    """Two-sided paired sign-flip test of the mean over seeds; return (p, smallest p possible with so many seeds).

    All 2^n flips up to 16 seeds, else `draws` random ones and the observed one. Seeds are random here and the items
    are fixed.
    """
    observed = np.asarray(differences, dtype=float)
    count = len(observed)
    if count == 0:
        raise ValueError("sign_flip: no differences")
    if count <= EXACT_FLIPS:
        signs = np.array(list(product((1.0, -1.0), repeat=count)))
    else:
        signs = np.random.default_rng(seed).choice((1.0, -1.0), (draws, count))
        signs[0] = 1.0
    sums = np.abs(signs @ observed)
    tolerance = 1e-12 * np.abs(observed).sum()
    return float(np.mean(sums >= abs(observed.sum()) - tolerance)), max(2.0 ** (1 - count), 1 / len(signs))


def holm(p: Sequence[float]) -> Array:
    """Holm's step-down adjusted p-values (Scandinavian Journal of Statistics 6, 1979); NaN stays NaN and does not
    count.
    """
    raw = np.asarray(p, dtype=float)
    adjusted = np.full(raw.shape, np.nan)
    known = np.flatnonzero(~np.isnan(raw))
    order = known[np.argsort(raw[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return adjusted


def _slopes(means: Array, direction: Direction) -> Array:
    if isinstance(direction, dict):
        return np.where(means >= direction["target"], -1.0, 1.0)
    return np.full_like(means, 1.0 if direction == "max" else -1.0)


def _resolution(values: Sequence[Array]) -> float:
    """Variance that rounding to whole items hides in a paired difference (Sheppard); 0 where all arms agree.

    Two seeds whose 0/1 items give the very same count are common, and without this would claim that seeds do not
    matter.
    """
    if _arms_agree(values):
        return 0.0
    steps = [np.diff(np.unique(subset)).min(initial=np.inf) / subset.shape[2] for subset in values]
    return float(sum(step**2 for step in steps if np.isfinite(step)) / (6 * len(values) ** 2))


def _arms_agree(values: Sequence[Array]) -> bool:
    return all((subset == subset[:1]).all() for subset in values)


def unseen(values: Sequence[Array], alpha: float) -> float:
    """Return the difference that could go unseen where no item differs between arms; 0 where one does.

    Resampling items that all agree yields no spread at all, but n items without a difference only say that the share of
    items with one is below -ln(alpha / 2) / n on either side (rule of three: Hanley and Lippman-Hand, 1983, JAMA 249,
    1743-1745). The worst case puts them all in the subset with the fewest items. An item changes by at least the
    smallest step between values: 1 for 0/1 items, next to nothing for continuous ones.
    """
    if not _arms_agree(values):
        return 0.0
    shares = [min(1.0, -np.log(alpha / 2) / subset.shape[2]) for subset in values]
    steps = [np.diff(np.unique(subset)).min(initial=np.inf) for subset in values]
    hidden = [share * step for share, step in zip(shares, steps, strict=True) if np.isfinite(step)]
    return float(max(hidden, default=0.0) / len(values))
