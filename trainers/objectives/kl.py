"""Kullback-Leibler divergence to the reference policy."""

from collections.abc import Callable

from torch import Tensor


def k3(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token: r - log r - 1, r = reference / policy; (B, T), nats.

    Never negative, unbiased under the policy's own samples (Schulman 2020, "Approximating KL divergence"; GRPO, arXiv
    2402.03300, equation 4). verl's `low_var_kl` is this, bounded at 10. TRL multiplies it by the importance ratio, with
    gradient (`use_bias_correction_kl`, true by default since 1.16; DeepSeek-V3.2, arXiv 2512.02556); false gives this.
    """
    difference = (reference_logps - logps).clamp(-20.0, 20.0)
    return difference.exp() - difference - 1


def k1(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the estimate log(policy / reference), (B, T): unbiased, of either sign.

    Its gradient under the policy's own samples is 0 in the mean: in a loss it does not hold the policy.
    """
    return logps - reference_logps


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k3": k3}


def adapt_coefficient(coefficient: float, mean_kl: float, *, target: float) -> float:
    """Return the next coefficient: times 1.5 above 2 target, times 0.5 below target / 2, kept within [0.01, 1].

    The three-band rule of PPO's adaptive penalty (arXiv 1707.06347, section 4) with GSPO's factors and bounds (the GSPO
    notes).
    """
    if mean_kl > 2 * target:
        coefficient *= 1.5
    elif mean_kl < 0.5 * target:
        coefficient *= 0.5
    return min(max(coefficient, 0.01), 1.0)
