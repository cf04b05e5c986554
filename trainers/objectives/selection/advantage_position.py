"""Rank advantages with ties by position: `compute_advantage` of `pointer_selector_v3.py` (seed 003, cause 2)."""

import torch
from torch import Tensor

from trainers.objectives.selection.present import everything, positions


def advantages(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 1 - 2 rank / (n - 1), rank 0 for the best of a query's n sequences, (Q, N) of rewards (Q, N).

    The first of equal rewards has the better rank, so a query without any right sequence gets 1 to -1: the defect that
    the seed diagnoses. A query with one sequence gets 0.

    Args:
        rewards: (Q, N).
        present: (Q, N) bool, the places that hold a sequence; None: all. The others get 0.
    """
    present = everything(rewards) if present is None else present
    count = present.sum(-1, keepdim=True)
    signal = 1.0 - 2.0 * positions(rewards, present, descending=True) / (count - 1).clamp(min=1)
    return torch.where(present & (count > 1), signal, 0.0)
