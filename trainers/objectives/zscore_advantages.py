"""Z-score advantages with a lower bound on the standard deviation (the demonstrations notes, scheme 3)."""

import torch
from torch import Tensor

MIN_STD = 0.1  # a smaller standard deviation is noise, which dividing by it would amplify


def zscore_advantages(rewards: Tensor) -> Tensor:
    """Return `(R - mean) / max(std, 0.1)`, (Q, N), over each query's sequences, for rewards R (Q, N).

    std is the sample standard deviation (n - 1), as in the source. Equal rewards give exactly 0.
    """
    count = rewards.shape[-1]
    centred = rewards - rewards.sum(-1, keepdim=True) / count
    std = (centred.square().sum(-1, keepdim=True) / (count - 1)).sqrt()
    equal = rewards.amin(-1, keepdim=True) == rewards.amax(-1, keepdim=True)
    return torch.where(equal, 0.0, centred / std.clamp(min=MIN_STD))
