"""How often is a word wrong, at least and at most, when the trials are not all independent. See docs/certificate.md.

lower_bound(wrong, trials, confidence), upper_bound(...)    one-sided Clopper-Pearson bounds
effective_units(units, shared)                              units that share a part of their noise
design_effect(rates)                                        of trials that come in groups
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

CONFIDENCE = 0.95
ENOUGH = 14  # independent trials without an error that exclude, with CONFIDENCE, a word that is wrong one time in five


def lower_bound(wrong: float, trials: float, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided Clopper-Pearson lower bound of a rate; `wrong` and `trials` need not be whole.

    Numbers that are not whole come from an effective number of trials: Korn and Graubard (1998, Survey Methodology 24,
    193-201) put it, and the rate times it, into the bound of Clopper and Pearson (1934, Biometrika 26, 404-413).
    """
    return 0.0 if wrong <= 0 else float(special.betaincinv(wrong, trials - wrong + 1, 1 - confidence))


def upper_bound(wrong: float, trials: float, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound, likewise; 1 where there is no trial."""
    return 1.0 if wrong >= trials else float(special.betaincinv(wrong + 1, trials - wrong, confidence))


def effective_units(units: float, shared: float) -> float:
    """Return the number of independent units that say as much as `units` whose noise is shared by this part.

    Kish's (1965, Survey Sampling) design effect of a mean over units that all correlate by `shared`.
    """
    return units / (1 + max(units - 1, 0) * shared)


def design_effect(rates: Sequence[float], sizes: Sequence[int]) -> float:
    """Return by how much trials in groups say less than as many independent ones; at least 1.

    The variance of the rate between groups, over that of independent trials. Groups that are all right, or all wrong,
    show no effect: 1.
    """
    size, rate = np.asarray(sizes, dtype=float), np.asarray(rates, dtype=float)
    if len(rate) < 2 or size.max() <= 1:
        return 1.0
    mean = float((size * rate).sum() / size.sum())
    if mean in (0.0, 1.0):
        return 1.0
    count = len(rate)
    between = float(((size * (rate - mean)) ** 2).sum()) * count / (count - 1) / float(size.sum()) ** 2
    return max(1.0, between * float(size.sum()) / (mean * (1 - mean)))
