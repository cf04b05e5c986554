"""Unseen changes: a cluster that changes and was not among those drawn. Formulas in docs/statistics.md.

    unseen(ranges, weights, clusters, apart, found) -> what one such cluster would add to the contrast

`ranges` holds for each arm the smallest and the largest value of each subset, `apart` the contrasts of items
[seeds, items] per subset, `found` their means over seeds.
"""

from collections.abc import Sequence

import numpy as np

from ablation.judge.resampling import Clusters
from ablation.judge.significance import Array

_A_CHANGE = 0.1  # of the range: a cluster that changed by as much has changed


def unseen(
    ranges: Sequence[Sequence[tuple[float, float]]],
    weights: Array,
    clusters: Clusters,
    apart: Sequence[Array],
    found: Sequence[Array],
) -> float:
    """Return what one cluster that changes, and was not among those drawn, would add to the contrast.

    If none of n clusters changed, the share that would change is below -ln(alpha / 2) / n, on either side (rule of
    three: Hanley and Lippman-Hand, 1983, JAMA 249, 1743-1745); -ln(alpha / 2) times this number is the bound. An item
    can change by the range of its subset's values. Changed clusters show how much clusters change: after m of them
    (counted in whole changes), the next is larger than all with a probability of about 1 / m. So the change is the
    largest seen plus a share 1 / m of the range, at most the range. It is needed only for clusters that hardly differ:
    where all differ, their spread shows it. A single item counts as differing by a tenth of the range, in the mean over
    seeds; a cluster of several if a tenth of its items do, in any seed. The worst subset, of few clusters, counts. 0
    for a single arm: its mean has no such items.
    """
    if np.count_nonzero(weights) < 2:
        return 0.0
    wide = [_range(min(low for low, _ in of), max(high for _, high in of)) for of in zip(*ranges, strict=True)]
    positive = float(weights[weights > 0].sum())
    most = clusters.shares @ (np.array(wide) * positive / len(apart))  # [clusters]: each item changes as it can at most
    if not most.any():
        return 0.0
    changed = sum(clusters.sums(v / (len(v) * len(apart)), index) for index, v in enumerate(found))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(most > 0, np.minimum(np.abs(changed) / most, 1.0), 0.0)
    size = min(1.0, float(parts.max()) + 1 / max(1.0, float(parts.sum())))
    unchanged = 1 - float(_differing(wide, clusters, apart, found) @ most / most.sum())
    return size * unchanged * float((clusters.shares.T @ most).max())


def _differing(ranges: Sequence[float], clusters: Clusters, apart: Sequence[Array], found: Sequence[Array]) -> Array:
    """Whether each cluster's items differ between the arms [clusters], in [0, 1]; `found`: of items, over seeds."""
    differ = mean = np.zeros(clusters.count)
    for index, subset in enumerate(apart):
        change = _A_CHANGE * max(ranges[index], np.finfo(float).tiny)
        items = np.minimum(np.abs(subset).max(axis=0) / change, 1.0)
        differ = differ + clusters.sums(items, index)
        mean = mean + clusters.sums(np.abs(found[index]) / change, index)
    sizes = clusters.sizes
    return np.minimum(np.where(sizes == 1, mean, differ / np.maximum(sizes, 1) / _A_CHANGE), 1.0)


def _range(low: float, high: float) -> float:
    """Range of the values of a subset; where they are all the same, that to 0, or 1 if they are 0 or 1."""
    if high > low:
        return high - low
    return 1.0 if high in (0.0, 1.0) else abs(high)
