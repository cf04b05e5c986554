"""The noise of a study's own edges, for planted effects to carry: what items share, what is new in every run, what a
seed adds.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracker.judge.certificate.pseudo import Runs
from tracker.judge.measurements import Measurements


@dataclass(frozen=True)
class Noise:
    """Between the two arms of an edge, in units of the item values."""

    common: float  # mean size of an item's change that all seeds share
    fresh: float  # mean size of an item's change that is new in every seed
    shift: float  # standard deviation of what a seed adds to the mean of the items


def noise_of(study: Measurements, runs: Runs) -> Noise:
    """Return the median over the study's edges with two seeds or more; no noise where there is none.

    An item's changes d of size `range` in a share of the items have mean product share * range^2 in two seeds that
    share them, and mean square (common + fresh) * range.
    """
    found = []
    for variant in study.variants:
        if variant.parent is None or variant.name not in runs.values or variant.parent not in runs.values:
            continue
        (ours, child), (theirs, parent) = runs.values[variant.name], runs.values[variant.parent]
        seeds = [seed for seed in ours if seed in theirs]
        if len(seeds) < 2:
            continue
        common, fresh, variance = 0.0, 0.0, 0.0
        differences = []
        for a, b, low, high in zip(child, parent, runs.low, runs.high, strict=True):
            d = a[[ours.index(seed) for seed in seeds]] - b[[theirs.index(seed) for seed in seeds]]
            differences.append(d.mean(axis=1))
            if high > low:
                shared = float(np.mean([(x * y).mean() for x, y in pairwise(d)]))
                common += max(shared, 0.0) / (high - low) / len(child)
                fresh += max(float((d**2).mean()) - max(shared, 0.0), 0.0) / (high - low) / len(child)
                variance += float(d.var(axis=1).mean()) / d.shape[1] / len(child) ** 2
        shift = float(np.var(np.mean(differences, axis=0), ddof=1)) - variance
        found.append((common, fresh, max(shift, 0.0) ** 0.5))
    if not found:
        return Noise(0.0, 0.0, 0.0)
    common, fresh, shift = np.median(np.array(found), axis=0)
    return Noise(float(common), float(fresh), float(shift))


def seeds_share(runs: Runs) -> float:
    """Return the part of the seed-to-seed variance of the runs' means that variants share, in [0, 1].

    Two-way analysis of variance over the variants with the most common seeds. What a seed gives to every variant (its
    warm start, its data order) makes the splits of different variants say the same.
    """
    most = runs.most_seeds
    means = np.array(
        [
            np.mean([subset.mean(axis=1) for subset in arrays], axis=0)
            for seeds, arrays in runs.values.values()
            if len(seeds) == most
        ]
    )
    if means.shape[0] < 2 or most < 2:
        return 0.0
    variants, seeds_count = means.shape
    centred = means - means.mean(axis=1, keepdims=True)
    by_seed = centred.mean(axis=0)
    between = variants * float((by_seed**2).sum()) / (seeds_count - 1)
    rest = float(((centred - by_seed) ** 2).sum()) / ((variants - 1) * (seeds_count - 1))
    shared = max(between - rest, 0.0) / variants
    return shared / (shared + rest) if shared > 0 else 0.0
