"""Computes power, the minimum detectable effect, and the number of seeds needed (docs/explanation/statistics.md)."""

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from math import isinf

import numpy as np
from scipy import special

from ablation.judge.moderation import FEWEST_SEEDS
from ablation.judge.significance import Array, Noise, brentq, critical_square, student_isf

POWER = 0.8
MOST_SEEDS = 1000
_QUANTILES = 400  # of an estimated variance
_ITEM_QUANTILES = 20  # of the items' one, known far better


@lru_cache(maxsize=256)
def variance_ratios(df: float, count: int) -> Array:
    """Return quantiles of an estimated variance in units of the true one, that is, quantiles of `chi2_df / df`."""
    if isinf(df):
        return np.ones(1)
    return 2 * special.gammaincinv(df / 2, (np.arange(count) + 0.5) / count) / df


def power(effect: float, noise: Noise, level: float, quantiles: int = _QUANTILES) -> float:
    """Return the probability that the two-sided p of a true effect is at most `level`, for the true variances `noise`.

    It is averaged over the variances that a study may estimate, the true ones times chi2_df / df.
    """
    critical = _critical(noise, level, quantiles)
    sd = np.sqrt(noise.total)
    if sd == 0:
        return float(np.mean(abs(effect) > critical))
    above, below = special.ndtr((effect - critical) / sd), special.ndtr((-critical - effect) / sd)
    return float(np.mean(above + below))


@lru_cache(maxsize=16)
def _critical(noise: Noise, level: float, quantiles: int) -> Array:
    """Return the smallest significant effect for each quantile of the estimated variances [items, seeds]."""
    by_seed = variance_ratios(noise.seed_df, quantiles)
    by_item = variance_ratios(noise.item_df, _ITEM_QUANTILES)[:, None]
    critical: Array = np.sqrt(critical_square(noise, level, by_seed, by_item))
    return critical


def minimal_detectable_effect(noise: Noise, level: float, wanted: float = POWER) -> float:
    """Return the smallest true effect that is found with probability `wanted`.

    With one seed it is a lower bound from item noise, or NaN if the items show no noise either.
    """
    if not noise.seeds_known:
        if noise.item_variance <= 0 and noise.unseen == 0:
            return float("nan")
        by_item = student_isf(noise.item_df, level / 2) + float(special.ndtri(wanted))
        return by_item * float(np.sqrt(noise.item_variance)) + noise.hidden(level)
    low, high = 0.0, float(np.sqrt(noise.total)) or noise.hidden(level)
    if high == 0:
        return 0.0

    def excess(effect: float) -> float:
        return power(effect, noise, level) - wanted

    while excess(high) < 0:
        low, high = high, 2 * high
    if low == 0 and excess(low) >= 0:
        return 0.0
    return float(brentq(excess, low, high, xtol=1e-14 * high, rtol=1e-14))


def seeds_needed(
    effect: float, noise: Noise, seeds: int, level: float, *, interims: Mapping[int, float] | None = None
) -> int | None:
    """Return the fewest seeds that detect a true effect as large as the observed one with 80% power.

    `noise` is that of the mean over `seeds`; only its item variance does not shrink with more seeds. None if more than
    1,000 seeds are needed, which means that more items are, or if the noise over seeds is unknown.
    """
    if not noise.seeds_known or effect == 0:
        return None

    def enough(count: int, share: float = 1.0) -> bool:
        return power(abs(effect), noise.after(count, seeds), level * share) >= POWER

    if interims:
        return next((count for count, share in interims.items() if enough(count, share)), None)
    least = FEWEST_SEEDS if noise.seed_df > seeds - 1 else 2  # with fewer there would be no moderated variance
    fewest = least + bisect_left(range(least, MOST_SEEDS + 1), True, key=enough)
    return fewest if fewest <= MOST_SEEDS else None
