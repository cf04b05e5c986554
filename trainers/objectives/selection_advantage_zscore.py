"""Z-score advantages with a floor under the standard deviation (seed 003, scheme 3)."""

import torch
from torch import Tensor

MIN_STD = 0.1  # below it rewards differ by noise, and dividing by it would blow the noise up


def advantages(rewards: Tensor) -> Tensor:
    """Return (R - mean) / max(std, 0.1) over a query's sequences, (Q, N) of rewards (Q, N).

    std is the sample standard deviation (n - 1), as torch's default in the source. Rewards that are all equal give
    exactly 0. ValueError for n = 1.
    """
    if rewards.shape[-1] < 2:
        raise ValueError("a z-score needs at least two sequences per query")
    centred = rewards - rewards.mean(-1, keepdim=True)
    scores = centred / rewards.std(-1, keepdim=True).clamp(min=MIN_STD)
    return torch.where((rewards == rewards[..., :1]).all(-1, keepdim=True), 0.0, scores)
