"""The clipped surrogate of PPO (arXiv 1707.06347, equation 7), with separate lower and upper bounds (DAPO)."""

import torch
from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean


def clip_surrogate(
    ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual: float | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return `max(-w * A, -clip(w, 1 - clip_low, 1 + clip_high) * A)`, (N, T), for the ratio w and the advantages A.

    clip_low = clip_high is PPO; clip_high > clip_low is DAPO's clip-higher (arXiv 2503.14476, equation 10). `dual`
    bounds the loss of negative advantages by -dual A (arXiv 1912.09729; verl's `clip_ratio_c`, 3 by default; TRL's
    `delta`, none by default). Diagnostics: the shares of clipped tokens, in total and at the lower and upper bound.
    """
    unclipped = -ratio * advantages
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    loss = torch.maximum(unclipped, clipped)
    if dual is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
    active = clipped > unclipped
    diagnostics: Diagnostics = {
        "policy/clip_fraction": Mean.of(active, mask),
        "policy/clip_fraction_low": Mean.of(active & (advantages < 0), mask),
        "policy/clip_fraction_high": Mean.of(active & (advantages > 0), mask),
    }
    return loss, diagnostics
