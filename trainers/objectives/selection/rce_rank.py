"""Rank-normalised rewards for the weights of RCE (seed 003, cause 3), where equal rewards share their rank."""

from torch import Tensor

from trainers.objectives.selection.present import everything, midranks


def rank_normalised(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 1 for the best of a query's n sequences, 0 for the worst, (n - 1 - rank) / (n - 1), (Q, N) of (Q, N).

    So all queries without ties get the same weights, which is what seed 003 criticises. Equal rewards share the mean of
    their ranks; the seed ranks them by position (`rce_position`). A query with one sequence gets 0.

    present: (Q, N) bool, the places that hold a sequence; None: all.
    """
    present = everything(rewards) if present is None else present
    last = present.sum(-1, keepdim=True) - 1
    return (last - midranks(rewards, present)) / last.clamp(min=1)
