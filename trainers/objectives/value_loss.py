"""The loss of PPO's critic."""

import torch
from torch import Tensor

from trainers.objectives.aggregation import Aggregation, aggregate, masked_mean


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float,
    aggregation: Aggregation = "token_mean",
    units: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return 0.5 mean max((v - R)^2, (clip(v, v_old - clip, v_old + clip) - R)^2); all tensors (B, T).

    As in OpenAI's PPO and verl's `compute_value_loss`. Diagnostics: share of clipped tokens, explained variance
    1 - var(R - v) / var(R).
    """
    bounded = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    plain, clipped = (values - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * aggregate(torch.maximum(plain, clipped), mask, aggregation, units=units)
    with torch.no_grad():
        residual = returns - values
        spread = masked_mean((returns - masked_mean(returns, mask)) ** 2, mask)
        noise = masked_mean((residual - masked_mean(residual, mask)) ** 2, mask)
        diagnostics = {
            "value/clip_fraction": masked_mean((clipped > plain).to(values.dtype), mask),
            "value/explained_variance": 1 - noise / spread.clamp(min=1e-8),
        }
    return loss, diagnostics
