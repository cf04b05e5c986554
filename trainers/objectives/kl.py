"""Kullback-Leibler divergence to the reference policy."""

from torch import Tensor


def k3(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token: r - log r - 1, r = reference / policy; (B, T), nats.

    Never negative, unbiased under the policy's own samples (Schulman 2020, "Approximating KL divergence"; GRPO, arXiv
    2402.03300, equation 4; TRL's `per_token_kl`; verl's `low_var_kl` before its bounds).
    """
    difference = (reference_logps - logps).clamp(-20.0, 20.0)
    return difference.exp() - difference - 1
