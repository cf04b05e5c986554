"""Rank advantages: 1 for the best sequence of a query, -1 for the worst, whatever the distances (seed 003, cause 2)."""

import torch
from torch import Tensor

from trainers.objectives.selection.present import everything, midranks


def advantages(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 1 - 2 rank / (n - 1), rank 0 for the best of a query's n sequences, (Q, N) of rewards (Q, N).

    Equal rewards share the mean of their ranks (midranks), so a query whose rewards are all equal gets exactly 0. The
    seed ranks ties by position (`advantage_position`). A query with one sequence gets 0.

    Args:
        rewards: (Q, N).
        present: (Q, N) bool, the places that hold a sequence; None: all. The others get 0.
    """
    present = everything(rewards) if present is None else present
    count = present.sum(-1, keepdim=True)
    signal = 1.0 - 2.0 * midranks(rewards, present) / (count - 1).clamp(min=1)
    return torch.where(present & (count > 1), signal, 0.0)
