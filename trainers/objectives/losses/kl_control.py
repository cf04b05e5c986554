"""The coefficient of the KL term: fixed, or steered towards a target."""


def adapt_coefficient(
    coefficient: float, mean_kl: float, *, target: float, low: float = 0.01, high: float = 1.0
) -> float:
    """Return the next coefficient: times 1.5 above 2 target, times 0.5 below target / 2, kept within [low, high].

    The three-band rule of PPO's adaptive penalty (arXiv 1707.06347, section 4) with GSPO's factors (seed 004).
    """
    if mean_kl > 2 * target:
        coefficient *= 1.5
    elif mean_kl < 0.5 * target:
        coefficient *= 0.5
    return min(max(coefficient, low), high)
