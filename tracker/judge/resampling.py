"""Drawing items and seeds again: what of a difference is chance. Formulas in docs/statistics.md.

Arrays are [arms, seeds, items], one per subset: items are crossed with seeds, not nested in them.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tracker.judge.significance import Array


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


def shared_variance(draws: Array) -> float:
    """Mean covariance between seeds of bootstrap draws [replicates, seeds], at least 0; the variance where seeds is
    1.
    """
    seeds = draws.shape[1]
    if seeds == 1:
        return float(draws[:, 0].var())
    total, own = draws.sum(axis=1).var(), draws.var(axis=0).sum()
    return max(float(total - own) / (seeds * (seeds - 1)), 0.0)
