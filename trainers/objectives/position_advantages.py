"""Rank advantages, with ties broken by position: cause 2 of the demonstrations notes, from `pointer_selector_v3.py`."""

from torch import Tensor

from trainers.objectives.selection import positions


def position_advantages(rewards: Tensor) -> Tensor:
    """Return `1 - 2 * rank / (n - 1)`, (Q, N), for rewards (Q, N), with rank 0 for the best of a query's n sequences.

    The first of equal rewards has the better rank, so even a query with equal rewards gets advantages from 1 to -1,
    which is the defect that the demonstrations notes diagnose.
    """
    return 1.0 - 2.0 * positions(rewards, descending=True) / (rewards.shape[-1] - 1)
