"""What a comparison can detect: power, minimal detectable effect, seeds needed. Formulas in docs/statistics.md.

power(effect, seed_variance, item_variance, seeds, level) -> probability of a significant result
minimal_detectable_effect(seed_variance, item_variance, seeds, level) -> effect found with 80% power
seeds_needed(effect, seed_variance, item_variance, seeds, level) -> int | None
"""

from bisect import bisect_left
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from tracker.judge.significance import Array, critical_square, normal_isf

POWER = 0.8
MOST_SEEDS = 1000
_QUANTILES = (np.arange(400) + 0.5) / 400


@lru_cache(maxsize=64)
def _variance_ratios(seeds: int) -> Array:
    """Quantiles of an estimated variance in units of the true one: chi2_(S-1) / (S - 1)."""
    degrees = seeds - 1
    return 2 * special.gammaincinv(degrees / 2, _QUANTILES) / degrees


def power(effect: float, seed_variance: float, item_variance: float, seeds: int, level: float) -> float:
    """Probability that `significance.p_value` is at most `level` (two-sided), the variances being the true ones.

    The estimated seed variance is v_seed chi2_(S-1) / (S - 1), integrated over; the estimate is normal given the
    variances.
    """
    critical = np.sqrt(critical_square(seed_variance * _variance_ratios(seeds), item_variance, seeds, level))
    spread = np.sqrt(seed_variance + item_variance)
    if spread == 0:
        return float(effect != 0)
    above, below = special.ndtr((effect - critical) / spread), special.ndtr((-critical - effect) / spread)
    return float(np.mean(above + below))


def minimal_detectable_effect(
    seed_variance: float, item_variance: float, seeds: int, level: float, wanted: float = POWER
) -> float:
    """Smallest true effect found with probability `wanted`; with one seed, on item noise alone (a lower bound)."""
    if seeds < 2:
        return (normal_isf(level / 2) + float(special.ndtri(wanted))) * float(np.sqrt(item_variance))
    low, high = 0.0, float(np.sqrt(seed_variance + item_variance))
    if high == 0:
        return 0.0

    def excess(effect: float) -> float:
        return power(effect, seed_variance, item_variance, seeds, level) - wanted

    while excess(high) < 0:
        low, high = high, 2 * high
    if low == 0 and excess(low) >= 0:
        return 0.0
    return float(optimize.brentq(excess, low, high, xtol=1e-14 * high, rtol=1e-14))


def seeds_needed(
    effect: float, seed_variance: float, item_variance: float, seeds: int, level: float, *, wanted: float = POWER
) -> int | None:
    """Fewest seeds that find a true effect as large as the observed one with probability `wanted`.

    `seed_variance` is that of the mean over `seeds`; it shrinks as 1 / n, the items' share does not. None: not even
    1000 seeds would do (more items are needed), or there is one seed and its noise is unknown.
    """
    if seeds < 2 or effect == 0:
        return None

    def enough(count: int) -> bool:
        return power(abs(effect), seed_variance * seeds / count, item_variance, count, level) >= wanted

    found = 2 + bisect_left(range(2, MOST_SEEDS + 1), True, key=enough)
    return found if found <= MOST_SEEDS else None
