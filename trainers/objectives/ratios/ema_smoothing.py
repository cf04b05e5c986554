"""Innovation 2.1 (seed 001): importance ratios smoothed along the response by an exponential moving average."""

import torch
from torch import Tensor

from trainers.objectives.diagnostics.statistics import Diagnostics, Reduction, Variance


def transform(ratio: Tensor, mask: Tensor, *, beta: float) -> tuple[Tensor, Diagnostics]:
    """Return w'_1 = w_1, w'_t = beta w_t + (1 - beta) w'_{t-1} of token ratios (B, T); beta = 1 changes nothing.

    beta weighs the present token: independent ratios keep beta / (2 - beta) of their variance far from the start, 82%
    at 0.9. Diagnostics: population variances over all tokens, and 1 - var(w') / var(w), undefined where all ratios are
    equal (the first minibatch after a rollout: there is no variance to reduce).
    """
    columns = [ratio[:, 0]]
    for t in range(1, ratio.shape[1]):
        columns.append(beta * ratio[:, t] + (1 - beta) * columns[-1])
    smoothed = torch.stack(columns, dim=1)
    diagnostics: Diagnostics = {
        "ema/variance_reduction_ratio": Reduction.of(ratio, smoothed, mask),
        "ema/raw_weights_variance": Variance.of(ratio, mask),
        "ema/smoothed_weights_variance": Variance.of(smoothed, mask),
    }
    return smoothed, diagnostics
