"""Rank advantages: from 1 for the best sequence of a query to -1 for the worst (the demonstrations notes, cause 2)."""

from torch import Tensor


def rank_advantages(rewards: Tensor) -> Tensor:
    """Return `1 - 2 * rank / (n - 1)`, (Q, N), for rewards (Q, N), with rank 0 for the best of a query's n sequences.

    Equal rewards share the mean of their ranks, so a query with equal rewards gets exactly 0. `position_advantages`
    ranks ties by position instead.
    """
    others, reward = rewards[..., None, :], rewards[..., :, None]
    better, ties = (others > reward).sum(-1), (others == reward).sum(-1) - 1
    ranks = better.to(rewards.dtype) + 0.5 * ties
    return 1.0 - 2.0 * ranks / (rewards.shape[-1] - 1)
