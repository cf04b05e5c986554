"""Innovation 2.5 (the innovations notes): earlier tokens have larger weights."""

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
    """Return weights (N, T), `d_t = gamma^(t-1)` for t = 1 .. L in a response of L tokens.

    normalize: whether the weights of a response are scaled to mean 1, to sum 1, or not at all.

    lspd: alpha and tau of logarithmic-scale position decay, which replaces d_t by
    exp(-alpha log(1 + (t-1)/tau) / log(1 + (L-1)/tau)), from 1 at the first to e^-alpha at the last token of a response
    of any length. logps: (N, T), used only for its shape, type and device. Diagnostics, as means over responses: the
    sum of the weights before they are normalised, and the first and last normalised weights.
    """
    mask = mask.to(logps.dtype)
    steps = torch.arange(logps.shape[1], device=logps.device, dtype=logps.dtype)
    length = mask.sum(-1, keepdim=True)
    if lspd is None:
        raw = gamma**steps * mask
    else:
        tau = lspd["tau"]
        longest = torch.log1p((length - 1).clamp(min=1) / tau)  # clamped, as a single token would give 0 / 0
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
