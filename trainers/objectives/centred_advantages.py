"""Differences from the mean of a query, undivided: scheme 3 of the notes with `normalize=False`."""

from torch import Tensor


def centred_advantages(rewards: Tensor) -> Tensor:
    """Return R - mean over a query's sequences, (Q, N) of rewards (Q, N)."""
    return rewards - rewards.mean(-1, keepdim=True)
