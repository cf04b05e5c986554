"""Conditional training: queries with too few right sequences give no loss (seed 003, scheme 4)."""

from torch import Tensor

from trainers.objectives.selection_missing import missing_as_zero


def trained_queries(correct: Tensor, min_positive_ratio: float) -> Tensor:
    """Return whether the share of correct sequences reaches `min_positive_ratio`, (Q,) bool of `correct` (Q, N).

    A missing value counts as wrong. The bound itself is enough: 2 of 10 reach 0.2.
    """
    share = (missing_as_zero(correct) >= 1).sum(-1).double() / correct.shape[-1]
    return share >= min_positive_ratio - 1e-12
