"""Estimates variances by a comparison's design: whether seeds are paired, and whether verdicts cover other seeds.

`paired`: runs of one seed share data order or initialisation in both variants, so only their difference varies.
`independent`: runs share nothing, so each group varies separately; all runs count, and no numbering of the runs changes
a verdict. The choice is declared before there are results: choosing by the smaller p errs in 6 to 7%.

A verdict is about the `recipe`, so that other seeds would show the same, or about these `checkpoints`, for which only
the items are a sample (docs/explanation/statistics.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ablation.judge.significance import Array, GroupNoise

Seeds = Literal["paired", "independent"]
Claim = Literal["recipe", "checkpoints"]


@dataclass(frozen=True)
class Design:
    """Whether seeds are paired or independent, and whether verdicts are about the recipe or the checkpoints."""

    seeds: Seeds = "paired"
    claim: Claim = "recipe"

    @property
    def paired(self) -> bool:
        """Whether the runs of one seed are compared with each other."""
        return self.seeds == "paired"


@dataclass(frozen=True)
class ItemVariance:
    """The variance over items of a contrast of means over runs, and the part that more runs would not remove."""

    mean: float
    shared: float


def group_noise(variances: Sequence[float], runs: Sequence[int], weights: Array) -> tuple[GroupNoise, ...]:
    """Return the noise of each group's weighted mean, from the variance of one run; empty if no group has two runs.

    A group of one run is assumed to vary as the others do.
    """
    many = [(variance, count) for variance, count in zip(variances, runs, strict=True) if count > 1]
    if not many:
        return ()
    df = sum(count - 1 for _, count in many)
    pooled = sum(variance * (count - 1) for variance, count in many) / df
    return tuple(
        GroupNoise(
            weight**2 * (variance if count > 1 else pooled) / count, count - 1 if count > 1 else df, count, weight
        )
        for variance, count, weight in zip(variances, runs, weights.tolist(), strict=True)
        if weight
    )


def item_variance(contributions: Sequence[Array], weights: Array, *, draws: bool = False) -> ItemVariance:
    """Return the variance over items from each group's contributions [clusters, runs], or draws [replicates, runs].

    The mean covariance of two runs of a group is an unbiased estimate of the group's part. The part that two groups
    share is estimated by the mean covariance of a run of one with a run of the other. A single group has the weight 1.
    A group of one run is assumed to have as much noise by run and item as the others have on average.
    """
    if len(contributions) > 1:
        return _variance_of_groups(contributions, weights, draws=draws)
    [only], runs = contributions, contributions[0].shape[1]
    covariances = np.cov(only.T, ddof=0).reshape(runs, runs) if draws else only.T @ only
    return ItemVariance(float(covariances.sum()) / runs**2, max(_shared(covariances), 0.0))


def _variance_of_groups(contributions: Sequence[Array], weights: Array, *, draws: bool) -> ItemVariance:
    if draws:
        contributions = [(group - group.mean(axis=0)) / np.sqrt(len(group)) for group in contributions]
    means = np.stack([group.mean(axis=1) for group in contributions])
    across = (weights[:, None] * means).sum(axis=0)
    groups = [group.T @ group for group in contributions]
    alone = [float(np.trace(group)) / len(group) - _shared(group) for group in groups if len(group) > 1]
    residual = max(float(np.mean(alone)), 0.0) if alone else 0.0
    shared = [_shared(group) if len(group) > 1 else _shared(group) - residual for group in groups]
    total = float(across @ across)
    squares = np.square(means).sum(axis=1)
    return ItemVariance(total, max(total + float((weights**2) @ (np.array(shared) - squares)), 0.0))


def _shared(covariances: Array) -> float:
    """Return the mean covariance of two different runs, from covariances [runs, runs]; for one run, its variance."""
    runs, total = len(covariances), float(covariances.sum())
    return (total - float(np.trace(covariances))) / (runs * (runs - 1)) if runs > 1 else total
