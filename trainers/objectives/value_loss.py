"""The loss of PPO's critic."""

import torch
from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean, Reduction, aggregate


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float,
    units: float | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return 0.5 mean max((v - R)^2, (clip(v, v_old - clip, v_old + clip) - R)^2); all tensors (B, T).

    As in OpenAI's PPO and verl's `compute_value_loss`. Diagnostics: share of clipped tokens, explained variance
    1 - var(R - v) / var(R), undefined where all returns are equal.
    """
    bounded = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    plain, clipped = (values - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * aggregate(torch.maximum(plain, clipped), mask, "token_mean", units=units)
    diagnostics: Diagnostics = {
        "value/clip_fraction": Mean.of(clipped > plain, mask),
        "value/explained_variance": Reduction.of(returns, returns - values, mask),
    }
    return loss, diagnostics
