"""PPO's critic: generalised advantage estimation on tokens (arXiv 1506.02438, equation 16), and the critic's loss."""

import torch
from torch import Tensor

from trainers.objectives.policy import (
    Diagnostics,
    Mean,
    Variance,
    VarianceReduction,
    aggregate,
    decayed_sum,
    masked_mean,
)


def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Return advantages and returns, (N, T) each, from token rewards (N, T) and values (N, T); 0 outside `mask`.

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  return_t = A_t + V_t. Responses start at
    position 0; after the last token of a response, the value and the advantage are 0.
    """
    mask = mask.to(values.dtype)
    values = values * mask
    next_values = torch.nn.functional.pad(values[:, 1:], (0, 1))
    deltas = (rewards + gamma * next_values - values) * mask
    advantages = decayed_sum(deltas.flip(1), gamma * lam).flip(1)
    return advantages, (advantages + values) * mask


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Return `values` (N, T) scaled to mean 0 and sample variance 1 over `mask`, as in verl; 0 outside `mask`."""
    count = mask.sum().to(values.dtype)
    centred = values - masked_mean(values, mask)
    variance = masked_mean(centred**2, mask) * count / (count - 1).clamp(min=1.0)
    return centred * torch.rsqrt(variance + 1e-8) * mask.to(values.dtype)


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float,
    denominator: float | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return `0.5 * mean(max((v - R)^2, (clip(v, v_old - clip, v_old + clip) - R)^2))`; all tensors are (N, T).

    OpenAI's PPO and verl's `compute_value_loss` use the same loss. Diagnostics: the share of clipped tokens, and the
    explained variance 1 - var(R - v) / var(R), which is undefined if all returns are equal.
    """
    bounded = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    plain, clipped = (values - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * aggregate(torch.maximum(plain, clipped), mask, "token_mean", denominator=denominator)
    diagnostics: Diagnostics = {
        "value/clip_fraction": Mean.of(clipped > plain, mask),
        "value/explained_variance": VarianceReduction(Variance.of(returns, mask), Variance.of(returns - values, mask)),
    }
    return loss, diagnostics
