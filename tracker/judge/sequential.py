"""Looking again after more seeds without inflating errors: alpha spending over declared looks.

    spending(fraction, alpha) -> share of alpha spent, Lan and DeMets' O'Brien-Fleming form
    look_weights(looks, alpha) -> {seeds: weight}, weights sum to 1
    sequential_p(p_by_look, weights) -> one p-value, valid however often one looked

Lan and DeMets (1983, Biometrika 70, 659-663) spend alpha along 2 - 2 Phi(z_(alpha/2) / sqrt(t)) at the fraction t of
the most seeds. Each look is tested at what it alone spends, a weighted Bonferroni rule. Their recursion would spend a
little less carefully, but it assumes independent normal increments; here the looks share their items and have few
degrees of freedom, and Bonferroni's inequality holds under any dependence.
"""

from collections.abc import Mapping, Sequence
from math import isnan, sqrt

from scipy.special import ndtr

from tracker.judge.significance import normal_isf


def spending(fraction: float, alpha: float) -> float:
    """Alpha spent when `fraction` of the most seeds has been looked at; alpha itself from 1 on."""
    if fraction <= 0:
        return 0.0
    return float(2 * ndtr(-normal_isf(alpha / 2) / sqrt(min(fraction, 1.0))))


def look_weights(looks: Sequence[int], alpha: float) -> dict[int, float]:
    """{number of seeds: its share of alpha} for looks that increase; the shares sum to 1."""
    if not looks or any(b <= a for a, b in zip([1, *looks], looks, strict=False)):
        raise ValueError(f"looks: {list(looks)} must be increasing numbers of seeds, at least 2")
    spent = [0.0] + [spending(look / looks[-1], alpha) for look in looks]
    return {look: (b - a) / alpha for look, a, b in zip(looks, spent, spent[1:], strict=False)}


def sequential_p(p_by_look: Mapping[int, float], weights: Mapping[int, float]) -> float:
    """Smallest p / weight over the looks taken, at most 1: the level at which some look would have stopped; NaN for
    none.
    """
    taken = [p_by_look[look] / weights[look] for look in p_by_look if weights[look] > 0 and not isnan(p_by_look[look])]
    return min(1.0, *taken) if taken else float("nan")
