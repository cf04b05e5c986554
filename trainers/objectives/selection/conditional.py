"""Conditional training: queries with too few positive sequences give no loss (seed 003, scheme 4)."""

from torch import Tensor

from trainers.objectives.selection.missing import missing_as_zero
from trainers.objectives.selection.present import everything


def positives(rewards: Tensor, correct: Tensor, threshold: float | None) -> Tensor:
    """Return which sequences are positive, (Q, N) bool.

    threshold: as in the source, those whose reward exceeds it; None: those after which the answer is right (a missing
    `correct` counts as wrong).
    """
    return missing_as_zero(correct) >= 1 if threshold is None else rewards > threshold


def trained_queries(positive: Tensor, min_positive_ratio: float, present: Tensor | None = None) -> Tensor:
    """Return whether a query's share of positive sequences reaches `min_positive_ratio`, (Q,) bool.

    The bound itself is enough: 2 of 10 reach 0.2. present: (Q, N) bool, the places that hold a sequence; None: all.
    """
    present = everything(positive) if present is None else present
    share = (positive & present).sum(-1).double() / present.sum(-1)
    return share >= min_positive_ratio - 1e-12
