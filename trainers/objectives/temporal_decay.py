"""Innovation 2.5 (the innovations notes): earlier tokens get more of the response's advantage."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean


def temporal_decay_weights(
    logps: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    normalize: Literal["mean", "sum", "none"],
    lspd: Mapping[str, float] | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return d_t = gamma^(t-1) for t = 1 .. L: (N, T), with mean 1 or sum 1 over the response, or as they are.

    With `lspd` (logarithmic-scale position decay; alpha, tau) d_t = exp(-alpha log(1 + (t-1)/tau) / log(1 + (L-1)/tau))
    instead, from 1 at the first to e^-alpha at the last token of any length; of a single token 1. With "sum" a
    response's weights are 1/L of those of "mean". `logps` (N, T) gives shape, type and device only. Diagnostics, as
    means over the responses: the sum of the weights before they are normalised, and the first and the last weight that
    are used.
    """
    mask = mask.to(logps.dtype)
    steps = torch.arange(logps.shape[1], device=logps.device, dtype=logps.dtype)
    length = mask.sum(-1, keepdim=True)
    if lspd is None:
        raw = gamma**steps * mask
    else:
        tau = lspd["tau"]
        longest = torch.log1p((length - 1).clamp(min=1) / tau)  # of one token only its position 0 is looked at
        raw = torch.exp(-lspd["alpha"] * torch.log1p(steps / tau) / longest) * mask
    total = raw.sum(-1, keepdim=True)
    scale = {"mean": length, "sum": torch.ones_like(length), "none": total}[normalize]
    weights = raw * scale / total.clamp(min=torch.finfo(raw.dtype).tiny)
    last = weights.gather(1, (length.long() - 1).clamp(min=0))
    diagnostics: Diagnostics = {
        "temporal_decay/weight_sum": Mean.of(total),
        "temporal_decay/first_weight": Mean.of(weights[:, 0]),
        "temporal_decay/last_weight": Mean.of(last),
    }
    return weights, diagnostics
