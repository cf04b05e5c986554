"""Kullback-Leibler divergence to the reference policy."""

from torch import Tensor


def k3(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token: r - log r - 1, r = reference / policy; (B, T), nats.

    Never negative, unbiased under the policy's own samples (Schulman 2020, "Approximating KL divergence"; GRPO, arXiv
    2402.03300, equation 4). verl's `low_var_kl` is this, bounded at 10. TRL multiplies it by the importance ratio, with
    gradient (`use_bias_correction_kl`, true by default since 1.16; DeepSeek-V3.2, arXiv 2512.02556); false gives this.
    """
    difference = (reference_logps - logps).clamp(-20.0, 20.0)
    return difference.exp() - difference - 1
