"""Resamples items and seeds to estimate the noise of a difference (docs/explanation/statistics.md).

Arrays are [groups, seeds, items], one per subset: items are crossed with seeds, not nested in them. Whole clusters of
items are drawn; one array [items] per subset has the number of each item's cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ablation.judge.significance import Array

Numbers = NDArray[np.int64]

_A_CHANGE = 0.1  # of the range of the values: a cluster that changed by as much has changed
_SPREAD = 0.4  # the same, of the values' mean distance from their median, which one outlier does not move
_COMMON = (0.35, 0.5)  # mean share of such a change, from which on and up to which differences show how much items vary
_EVEN = (0.08, 0.15)  # the same for participation: about the share of the items that carry the differences
_MOST_COUNTS = 16_000_000  # of clusters times replicates, that are held at once


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of items that are drawn together; `of_items` has the cluster number of each item [items], by subset."""

    of_items: tuple[Numbers, ...]
    count: int

    @cached_property
    def shares(self) -> Array:
        """Share of each subset's items that a cluster contains [clusters, subsets]."""
        sizes = [np.bincount(of_items, minlength=self.count) / len(of_items) for of_items in self.of_items]
        return np.stack(sizes, axis=1)

    @cached_property
    def corrections(self) -> Array:
        """Factors `1 / sqrt(1 - share)` [clusters, subsets] that make the variance of clusters' sums unbiased (CR2).

        Bell and McCaffrey (2002, Survey Methodology 28, 169-181), for the mean of each subset. 0 if a cluster is the
        whole subset, whose noise is then unknown.
        """
        left = 1 - self.shares
        return np.where(left > 1e-12, 1 / np.sqrt(np.maximum(left, 1e-12)), 0.0)

    @cached_property
    def estimable(self) -> bool:
        """Whether the items' noise can be estimated, which needs several clusters in each subset."""
        return bool(self.corrections[self.shares > 0].all())

    def sums(self, values: Array, subset: int) -> Array:
        """Return sums over clusters [clusters, ...] of values [..., items] of one subset."""
        of_items, rows = self.of_items[subset], values.reshape(-1, values.shape[-1])
        out = np.zeros((self.count, len(rows)))
        if self.single:
            out[of_items] = rows.T
        else:  # the sums of all rows at once, each row's in bins of its own
            bins = (of_items + self.count * np.arange(len(rows))[:, None]).ravel()
            out[:] = np.bincount(bins, rows.ravel(), out.size).reshape(len(rows), self.count).T
        return out.reshape(self.count, *values.shape[:-1])

    @cached_property
    def sizes(self) -> Numbers:
        """Number of items of each cluster [clusters], over all subsets."""
        return np.bincount(np.concatenate(self.of_items), minlength=self.count)

    @cached_property
    def single(self) -> bool:
        """Whether each item is a cluster of its own."""
        return self.count == sum(map(len, self.of_items))


def number_clusters(sizes: Sequence[int], of_items: Sequence[Numbers] | None = None) -> Clusters:
    """Return clusters numbered without gaps; without `of_items`, each item is a cluster of its own."""
    if of_items is None:
        starts = np.cumsum([0, *sizes])
        return Clusters(tuple(np.arange(a, b) for a, b in pairwise(starts)), int(starts[-1]))
    if [len(numbers) for numbers in of_items] != list(sizes):
        raise ValueError(f"clusters are given for {[len(n) for n in of_items]} items per subset, not for {list(sizes)}")
    distinct, numbers = np.unique(np.concatenate(of_items), return_inverse=True)
    return Clusters(tuple(np.split(numbers, np.cumsum(sizes)[:-1])), len(distinct))


def contributions(values: Sequence[Array], clusters: Clusters) -> Array:
    """Return each cluster's contribution to the deviation of the means [clusters, groups, seeds, subsets] (CR2).

    The sum over clusters is 0 apart from the correction; the sum of squares is the variance of the mean.
    """
    scale = clusters.corrections
    columns = []
    for index, subset in enumerate(values):
        centred = subset - subset.mean(axis=2, keepdims=True)
        columns.append(clusters.sums(centred, index) * (scale[:, index] / subset.shape[2])[:, None, None])
    return np.stack(columns, axis=3)


def item_degrees(clusters: Clusters, together: float) -> float:
    """Return the degrees of freedom of the variance over items (Satterthwaite, after Bell and McCaffrey, 2002).

    `together`: the correlation of items of one cluster in the working model (Imbens and Kolesar, 2016, Review of
    Economics and Statistics 98, 701-712). The variance is a quadratic form with the matrix M, the covariance of the
    clusters' contributions; its degrees of freedom are tr(M)^2 / tr(M^2). With as many equal clusters, clusters - 1.
    """
    # M is linear in the correlation, so the traces are a line and a parabola.
    (none, least), (_, middle), (full, most) = (_traces(clusters, at) for at in (0.0, 0.5, 1.0))
    trace = none + (full - none) * together
    bend = 2 * (least + most - 2 * middle)
    squares = least + (most - least - bend) * together + bend * together**2
    return float(trace**2 / squares) if trace > 0 and squares > 0 else 0.0


@lru_cache(maxsize=256)
def _traces(clusters: Clusters, together: float) -> tuple[float, float]:
    """Return `tr(M)` and `tr(M @ M)` of the matrix M in `item_degrees`."""
    shares, scale = clusters.shares, clusters.corrections
    items = np.array([len(of_items) for of_items in clusters.of_items])
    # Covariance [clusters, subsets, subsets] of a cluster's sums, over the subset's number of items.
    covariance = together * shares[:, :, None] * shares[:, None, :]
    covariance[:, range(len(items)), range(len(items))] += (1 - together) * shares / items
    # M = D + P Q', of low rank but for the diagonal D: the means of the subsets are taken out.
    variance = np.einsum("gk,gl,gkl->g", scale, scale, covariance)
    out, weighed = np.einsum("gk,gkl->gl", scale, covariance), scale * shares
    left = np.concatenate([-out, -weighed, weighed @ covariance.sum(axis=0)], axis=1)
    right = np.concatenate([weighed, out, weighed], axis=1)
    small = right.T @ left
    trace = variance.sum() + np.trace(small)
    squares = (variance**2).sum() + 2 * np.einsum("gr,g,gr->", right, variance, left) + (small * small.T).sum()
    return float(trace), float(squares)


def correlation_within(values: Sequence[Array], clusters: Clusters) -> float:
    """Return the correlation, in [0, 1], of the values of two items of one cluster; 0 if no cluster has two items."""
    centred = [subset - subset.mean() for subset in values]
    sums = sum(clusters.sums(subset, index) for index, subset in enumerate(centred))
    sizes = clusters.sizes
    squares = float(sum((subset**2).sum() for subset in centred))
    pairs = float(np.sum(sizes * (sizes - 1)))
    if pairs == 0 or squares <= 0:
        return 0.0
    mean_product = (float(np.sum(np.square(sums))) - squares) / pairs
    return float(np.clip(mean_product / (squares / float(np.sum(sizes))), 0.0, 1.0))


@lru_cache(maxsize=4)
def cluster_counts(clusters: int, replicates: int, seed: int) -> Array:
    """Return how often each bootstrap replicate draws each cluster, minus 1, as an array [replicates, clusters].

    All contrasts with the same number of clusters use the same draws.
    """
    return _draw_counts(np.random.default_rng([seed, clusters]), clusters, replicates)


def _draw_counts(generator: np.random.Generator, clusters: int, replicates: int) -> Array:
    drawn = generator.integers(0, clusters, (replicates, clusters)) + clusters * np.arange(replicates)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=clusters * replicates).reshape(replicates, clusters)
    return np.asarray(counts - 1.0, dtype=np.float64)


def draw_sums(values: Array, replicates: int, seed: int) -> Array:
    """Return each bootstrap replicate's change of a sum over clusters [replicates, ...], from values [clusters, ...].

    The draws come from `cluster_counts`; many clusters are drawn a few replicates at a time, in bounded memory.
    """
    clusters = len(values)
    if clusters * replicates <= _MOST_COUNTS:
        return _sums(cluster_counts(clusters, replicates, seed), values)
    generator, blocks, left = np.random.default_rng([seed, clusters]), [], replicates
    while left:
        count = min(left, max(1, _MOST_COUNTS // 8 // clusters))
        blocks.append(_sums(_draw_counts(generator, clusters, count), values))
        left -= count
    return np.concatenate(blocks)


def _sums(counts: Array, values: Array) -> Array:
    return counts @ values if values.ndim == 1 else np.tensordot(counts, values, 1)


def unfolding(values: Sequence[Array], means: Array) -> Array:
    """Return the share [groups, subsets], in [0, 1], of the means' deviations over seeds that is not item noise.

    |mean - target| of a noisy mean is too large on average. The items distinguish noise that differs from seed to seed
    from true seed-to-seed spread, so each group's means are shrunk until their variance over seeds is the true spread's
    (constrained empirical Bayes: Louis, 1984, JASA 79, 393-398). Noise that seeds share stays, and widens the interval.
    """
    seeds = means.shape[1]
    if seeds < 2:
        return np.ones((means.shape[0], means.shape[2]))
    noise = np.zeros((means.shape[0], means.shape[2]))
    for index, subset in enumerate(values):
        if subset.shape[2] < 2:  # one item shows no noise
            continue
        item_noise = subset.var(axis=2, ddof=1).sum(axis=1)
        shared = (subset.sum(axis=1).var(axis=1, ddof=1) - item_noise) / (seeds * (seeds - 1))
        noise[:, index] = np.maximum(item_noise / seeds - shared, 0) / subset.shape[2]
    variance = means.var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(variance > 0, 1 - noise / variance, 0)
    return np.sqrt(np.clip(kept, 0, 1))


def draw_together(means: Array, share: Array) -> Array:
    """Return means [..., groups, seeds, subsets] whose deviations from the mean over seeds are scaled by `share`."""
    centre = means.mean(axis=-2, keepdims=True)
    return centre + share[:, None, :] * (means - centre)


def unseen(
    ranges: Sequence[Sequence[tuple[float, float]]],
    weights: Array,
    clusters: Clusters,
    apart: Sequence[Array],
    per_item: Sequence[Array],
) -> float:
    """Return what a changed cluster that is not among the sampled ones would add to the contrast; 0 for a single group.

    If none of n clusters changed, the share that would change is below -ln(alpha / 2) / n, on either side (rule of
    three: Hanley and Lippman-Hand, 1983, JAMA 249, 1743-1745); -ln(alpha / 2) times this number is the bound. An item
    can change by the range of its subset's values. Changed clusters show how much clusters change: after m of them
    (counted in whole changes), the next is larger than all with a probability of about 1 / m. So the change is the
    largest seen plus a share 1 / m of the range, at most the range. The bound is needed only if clusters hardly differ:
    if all differ, their spread shows how much others may differ. A single item counts as differing if its mean over
    seeds differs by a tenth of the range; a cluster of several, if a tenth of its items do in any seed. The worst
    subset counts.
    """
    if np.count_nonzero(weights) < 2:
        return 0.0
    wide = [
        _range(min(low for low, _ in subset_ranges), max(high for _, high in subset_ranges))
        for subset_ranges in zip(*ranges, strict=True)
    ]
    positive = float(weights[weights > 0].sum())
    most = clusters.shares @ (np.array(wide) * positive / len(apart))  # [clusters]: each item changes as it can at most
    if not most.any():
        return 0.0
    changed = sum(clusters.sums(v / (len(v) * len(apart)), index) for index, v in enumerate(per_item))
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(most > 0, np.minimum(np.abs(changed) / most, 1.0), 0.0)
    size = min(1.0, float(moved.max()) + 1 / max(1.0, float(moved.sum())))
    unchanged = 1 - float(_differing(wide, clusters, apart, per_item) @ most / most.sum())
    return size * unchanged * float((clusters.shares.T @ most).max())


def variation_shown(values: Sequence[Sequence[Array]], per_item: Sequence[Array]) -> float:
    """Return how well, in [0, 1], observed differences show how much items vary; at 1, a larger difference is unlikely.

    This is for values without bounds, whose range may be that of a single outlier. Differences show the variation if
    they are large beside the spread of the values, and no few of them outweigh the others. The subset that shows least
    counts.

    Args:
        values: [1, seeds, items] of each group, by subset.
        per_item: the contrast of each item [items], by subset.
    """
    shown = []
    for groups, differences in zip(values, per_item, strict=True):
        pooled, size = np.concatenate(groups, axis=None), np.abs(differences)
        change = min(_SPREAD * float(np.abs(pooled - np.median(pooled)).mean()), _A_CHANGE * float(np.ptp(pooled)))
        if change <= 0 or not size.any():
            return 0.0
        common, even = float(np.minimum(size / change, 1.0).mean()), float(size.mean() ** 2 / np.square(size).mean())
        shown += [float(np.interp(common, _COMMON, (0, 1))), float(np.interp(even, _EVEN, (0, 1)))]
    return min(shown)


def _differing(ranges: Sequence[float], clusters: Clusters, apart: Sequence[Array], per_item: Sequence[Array]) -> Array:
    """Return how much, in [0, 1], the items of each cluster differ between the groups [clusters].

    `per_item` holds the contrast of each item, as a mean over seeds [items], by subset.
    """
    differ = mean = np.zeros(clusters.count)
    for index, subset in enumerate(apart):
        change = _A_CHANGE * max(ranges[index], np.finfo(float).tiny)
        items = np.minimum(np.abs(subset).max(axis=0) / change, 1.0)
        differ = differ + clusters.sums(items, index)
        mean = mean + clusters.sums(np.abs(per_item[index]) / change, index)
    sizes = clusters.sizes
    return np.minimum(np.where(sizes == 1, mean, differ / np.maximum(sizes, 1) / _A_CHANGE), 1.0)


def _range(low: float, high: float) -> float:
    """Return the range of a subset's values; if all are equal, return their absolute value, or 1 if they are 0."""
    if high > low:
        return high - low
    return 1.0 if high in (0.0, 1.0) else abs(high)
