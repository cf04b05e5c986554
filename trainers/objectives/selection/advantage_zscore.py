"""Z-score advantages with a floor under the standard deviation (seed 003, scheme 3)."""

import torch
from torch import Tensor

from trainers.objectives.selection.present import all_equal, everything, mean_present

MIN_STD = 0.1  # below it rewards differ by noise, and dividing by it would blow the noise up


def advantages(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return (R - mean) / max(std, 0.1) over a query's sequences, (Q, N) of rewards (Q, N).

    std is the sample standard deviation (n - 1), as torch's default in the source. Rewards that are all equal, and so a
    query with one sequence, give exactly 0.

    Args:
        rewards: (Q, N).
        present: (Q, N) bool, the places that hold a sequence; None: all. The others get 0.
    """
    present = everything(rewards) if present is None else present
    centred = torch.where(present, rewards - mean_present(rewards, present), 0.0)
    freedom = (present.sum(-1, keepdim=True) - 1).clamp(min=1)
    std = (centred.square().sum(-1, keepdim=True) / freedom).sqrt()
    return torch.where(all_equal(rewards, present), 0.0, centred / std.clamp(min=MIN_STD))
