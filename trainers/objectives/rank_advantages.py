"""Rank advantages: 1 for the best sequence of a query, -1 for the worst, at any distance (the notes, cause 2)."""

from torch import Tensor


def rank_advantages(rewards: Tensor) -> Tensor:
    """Return 1 - 2 rank / (n - 1), rank 0 for the best of a query's n sequences, (Q, N) of rewards (Q, N).

    Equal rewards share the mean of their ranks (midranks), so a query whose rewards are all equal gets exactly 0. The
    seed ranks ties by position (`advantage_position`).
    """
    others, reward = rewards[..., None, :], rewards[..., :, None]
    better, ties = (others > reward).sum(-1), (others == reward).sum(-1) - 1
    ranks = better.to(rewards.dtype) + 0.5 * ties
    return 1.0 - 2.0 * ranks / (rewards.shape[-1] - 1)
