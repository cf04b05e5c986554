"""Innovation 2.5 (seed 001): earlier tokens get more of the response's advantage."""

from typing import Literal

import torch
from torch import Tensor

from trainers.objectives.diagnostics.statistics import Diagnostics, Mean


def token_weights(
    logps: Tensor, mask: Tensor, *, gamma: float, normalize: Literal["mean", "sum", "none"]
) -> tuple[Tensor, Diagnostics]:
    """Return d_t = gamma^(t-1) for t = 1 .. L: (B, T), with mean 1 or sum 1 over the response, or as they are.

    "sum" is the authors' form: a response's weights are then 1/L of those of "mean". `logps` (B, T) gives shape, type
    and device only. Diagnostics, as means over the responses: the sum of the weights before they are normalised,
    (1 - gamma^L) / (1 - gamma), and the first and the last weight that are used.
    """
    mask = mask.to(logps.dtype)
    steps = torch.arange(logps.shape[1], device=logps.device, dtype=logps.dtype)
    raw = gamma**steps * mask
    length, total = mask.sum(-1, keepdim=True), raw.sum(-1, keepdim=True)
    scale = {"mean": length, "sum": torch.ones_like(length), "none": total}[normalize]
    weights = raw * scale / total.clamp(min=torch.finfo(raw.dtype).tiny)
    last = weights.gather(1, (length.long() - 1).clamp(min=0))
    diagnostics: Diagnostics = {
        "temporal_decay/weight_sum": Mean.of(total),
        "temporal_decay/first_weight": Mean.of(weights[:, 0]),
        "temporal_decay/last_weight": Mean.of(last),
    }
    return weights, diagnostics
