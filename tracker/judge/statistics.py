"""Effect of one edge: estimate, interval, p-value. Formulas in docs/statistics.md.

    contrast(values, weights, direction, confidence=0.95) -> Estimate     child minus parent, or another contrast
    run_statistics(values, direction) -> [arms, seeds]                    what the tables show, as a gain

`values` is one array [arms, seeds, items] per subset: the same items for every arm and seed, the same seeds for every
arm. Items are crossed with seeds, not nested in them. A *gain* is the statistic in the direction's sense: larger is
better.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.judge.resampling import draw_together, resampled_deviations, shared_variance, unfolding
from tracker.judge.significance import Array, Noise, half_width, p_value

Direction = str | dict[str, float]

REPLICATES = 2000
BOOTSTRAP_SEED = 20250301


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
    noise = Noise(seed_variance, seeds - 1, item_variance)
    half = half_width(noise, 1 - confidence) + unseen(values, 1 - confidence)
    outer = np.quantile(reach, [(1 - confidence) / 2, (1 + confidence) / 2])
    crossing = _crossing(reach) if np.ptp(reach) > 0 else 0.0
    return Estimate(
        effect=effect,
        centre=centre,
        low=min(centre - half, effect, float(outer[0])),
        high=max(centre + half, effect, float(outer[1])),
        p=max(p_value(centre, noise), crossing) if seeds > 1 else float("nan"),
        seed_variance=seed_variance,
        item_variance=item_variance,
        seeds=seeds,
        items=items,
        item_p=max(p_value(centre, Noise(0.0, 1, whole)), crossing),
        per_seed=tuple(per_seed.tolist()),
    )


def _crossing(draws: Array) -> float:
    """Twice the share of draws on the smaller side of zero."""
    return min(1.0, 2 * min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0))))


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
