"""Innovation 2.5: earlier tokens get more of the response's advantage."""

import torch
from torch import Tensor


def token_weights(logps: Tensor, mask: Tensor, *, gamma: float, normalize: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Return d_t = gamma^(t-1) for t = 1 .. L, divided by its mean over the response where `normalize`: (B, T).

    `logps` (B, T) gives shape, type and device only. Diagnostics, as means over the responses: the sum of the weights,
    the first and the last one.
    """
    mask = mask.to(logps.dtype)
    steps = torch.arange(logps.shape[1], device=logps.device, dtype=logps.dtype)
    weights = gamma**steps * mask
    length = mask.sum(-1, keepdim=True)
    if normalize:
        weights = weights * length / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    last = weights.gather(1, (length.long() - 1).clamp(min=0))
    diagnostics = {
        "temporal_decay/weight_sum": weights.sum(-1).mean(),
        "temporal_decay/first_weight": weights[:, 0].mean(),
        "temporal_decay/last_weight": last.mean(),
    }
    return weights, diagnostics
