"""Innovation 2.1: importance ratios smoothed along the response by an exponential moving average."""

import torch
from torch import Tensor

from trainers.objectives.aggregation import masked_variance, variance_reduction


def transform(ratio: Tensor, mask: Tensor, *, beta: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return w'_1 = w_1, w'_t = beta w'_{t-1} + (1 - beta) w_t of token ratios (B, T); beta = 0 changes nothing.

    Diagnostics: population variances over all tokens, and 1 - var(w') / var(w), NaN where all ratios are equal (the
    first minibatch after a rollout: there is no variance to reduce).
    """
    columns = [ratio[:, 0]]
    for t in range(1, ratio.shape[1]):
        columns.append(beta * columns[-1] + (1 - beta) * ratio[:, t])
    smoothed = torch.stack(columns, dim=1)
    raw = masked_variance(ratio.detach(), mask)
    after = masked_variance(smoothed.detach(), mask)
    diagnostics = {
        "ema/variance_reduction_ratio": variance_reduction(raw, after),
        "ema/raw_weights_variance": raw,
        "ema/smoothed_weights_variance": after,
    }
    return smoothed, diagnostics
