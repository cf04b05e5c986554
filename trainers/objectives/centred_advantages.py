"""Differences from the query's mean reward: scheme 3 of the demonstrations notes with `normalize=False`."""

from torch import Tensor


def centred_advantages(rewards: Tensor) -> Tensor:
    """Return the advantages (Q, N): rewards (Q, N) minus the mean over each query's sequences."""
    return rewards - rewards.mean(-1, keepdim=True)
