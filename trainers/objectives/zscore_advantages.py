"""Z-score advantages with a floor under the standard deviation (the notes, scheme 3)."""

import torch
from torch import Tensor

MIN_STD = 0.1  # below it rewards differ by noise, and dividing by it would blow the noise up


def zscore_advantages(rewards: Tensor) -> Tensor:
    """Return (R - mean) / max(std, 0.1) over a query's sequences, (Q, N) of rewards (Q, N).

    std is the sample standard deviation (n - 1), as torch's default in the source. Rewards that are all equal give
    exactly 0.
    """
    count = rewards.shape[-1]
    centred = rewards - rewards.sum(-1, keepdim=True) / count
    std = (centred.square().sum(-1, keepdim=True) / (count - 1)).sqrt()
    equal = rewards.amin(-1, keepdim=True) == rewards.amax(-1, keepdim=True)
    return torch.where(equal, 0.0, centred / std.clamp(min=MIN_STD))
