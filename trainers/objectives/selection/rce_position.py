"""Ranks as rewards, ties by position: `compute_rce_loss` of `pointer_selector_v3.py` (seed 003, cause 3)."""

from torch import Tensor

from trainers.objectives.selection.present import everything, positions


def rank_normalised(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 0 for the worst of a query's n sequences, 1 for the best, rank / (n - 1), (Q, N) of (Q, N).

    The seed sorts in ascending order here, so that the last of equal rewards has the highest rank, where in its
    advantages the first has. A query with one sequence gets 0.

    present: (Q, N) bool, the places that hold a sequence; None: all.
    """
    present = everything(rewards) if present is None else present
    last = (present.sum(-1, keepdim=True) - 1).clamp(min=1)
    return positions(rewards, present, descending=False) / last
