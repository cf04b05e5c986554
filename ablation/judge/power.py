"""Power, minimal detectable effect and seeds needed. Formulas in docs/explanation/statistics.md."""

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from math import isinf

import numpy as np
from scipy import special

from ablation.judge.moderation import FEWEST_SEEDS
from ablation.judge.roots import brentq
from ablation.judge.significance import Array, Noise, critical_square, student_isf

POWER = 0.8
MOST_SEEDS = 1000
_QUANTILES = 400  # of an estimated variance
_ITEM_QUANTILES = 20  # of the items' one, known far better


@lru_cache(maxsize=256)
def variance_ratios(df: float, count: int) -> Array:
    """Return quantiles of an estimated variance in units of the true one: chi2_df / df."""
    if isinf(df):
        return np.ones(1)
    return 2 * special.gammaincinv(df / 2, (np.arange(count) + 0.5) / count) / df


def power(effect: float, noise: Noise, level: float, quantiles: int = _QUANTILES) -> float:
    """Return the probability that `significance.p_value` is at most `level` (two-sided), given the true variances.

    An estimated variance is the true one times chi2_df / df, integrated over; the estimate is normal given the
    variances.
    """
    critical = _critical(noise, level, quantiles)
    sd = np.sqrt(noise.total)
    if sd == 0:
        return float(np.mean(abs(effect) > critical))
    above, below = special.ndtr((effect - critical) / sd), special.ndtr((-critical - effect) / sd)
    return float(np.mean(above + below))


@lru_cache(maxsize=16)
def _critical(noise: Noise, level: float, quantiles: int) -> Array:
    """Return the smallest estimates that are significant, for each quantile of the estimated variances."""
    by_seed = variance_ratios(noise.seed_df, quantiles)
    by_item = variance_ratios(noise.item_df, _ITEM_QUANTILES)[:, None]
    critical: Array = np.sqrt(critical_square(noise, level, by_seed, by_item))
    return critical


def minimal_detectable_effect(noise: Noise, level: float, wanted: float = POWER) -> float:
    """Return the smallest true effect that is found with probability `wanted`; with one seed, a lower bound from item
    noise.

    NaN with one seed if the items show no noise either.
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
    """Return the fewest seeds that find a true effect as large as the observed one with 80% power.

    `noise` belongs to the mean over `seeds`; its seed variance and its residual shrink as 1 / n, the variance gains a
    degree of freedom with each seed, and the items' share does not change. None: more than 1000 seeds (more
    items are needed), or there is one seed and its noise is unknown.
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
