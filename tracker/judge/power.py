"""What a comparison can detect: power, minimal detectable effect, seeds needed. Formulas in docs/statistics.md.

power(effect, seed_variance, item_variance, seeds, level) -> probability of a significant result
minimal_detectable_effect(seed_variance, item_variance, seeds, level) -> effect found with 80% power
seeds_needed(effect, seed_variance, item_variance, seeds, level) -> int | None
"""

import numpy as np
from scipy import stats

from tracker.judge.statistics import critical_square

POWER = 0.8
MOST_SEEDS = 1000
_QUANTILES = (np.arange(400) + 0.5) / 400


def power(effect: float, seed_variance: float, item_variance: float, seeds: int, level: float) -> float:
    """Probability that `statistics.p_value` is at most `level` (two-sided), the variances being the true ones.

    The estimated seed variance is v_seed chi2_(S-1) / (S - 1), integrated over; the estimate is normal given the
    variances.
    """
    estimated = seed_variance * stats.chi2.ppf(_QUANTILES, seeds - 1) / (seeds - 1)
    critical = np.sqrt(critical_square(estimated, item_variance, seeds, level))
    spread = np.sqrt(seed_variance + item_variance)
    if spread == 0:
        return float(effect != 0)
    above, below = stats.norm.sf((critical - effect) / spread), stats.norm.cdf((-critical - effect) / spread)
    return float(np.mean(above + below))


def minimal_detectable_effect(
    seed_variance: float, item_variance: float, seeds: int, level: float, wanted: float = POWER
) -> float:
    """Smallest true effect found with probability `wanted`; with one seed, on item noise alone (a lower bound)."""
    if seeds < 2:
        return float((stats.norm.isf(level / 2) + stats.norm.ppf(wanted)) * np.sqrt(item_variance))
    low, high = 0.0, float(np.sqrt(seed_variance + item_variance))
    if high == 0:
        return 0.0
    while power(high, seed_variance, item_variance, seeds, level) < wanted:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        if power(middle, seed_variance, item_variance, seeds, level) < wanted:
            low = middle
        else:
            high = middle
    return high


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

    if not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
