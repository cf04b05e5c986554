"""Rank advantages: 1 for the best sequence of a query, -1 for the worst, whatever the distances (seed 003)."""

from torch import Tensor


def advantages(rewards: Tensor) -> Tensor:
    """Return 1 - 2 rank / (n - 1), rank 0 for the best of n, (Q, N) of rewards (Q, N).

    Equal rewards share the mean of their ranks (midranks), so a query whose rewards are all equal gets exactly 0. The
    source ranks ties by position, which would tell equal sequences apart. ValueError for n = 1.
    """
    count = rewards.shape[-1]
    if count < 2:
        raise ValueError("a rank advantage needs at least two sequences per query")
    better = (rewards[..., None, :] > rewards[..., :, None]).sum(-1)
    ties = (rewards[..., None, :] == rewards[..., :, None]).sum(-1) - 1
    rank = better.to(rewards.dtype) + 0.5 * ties
    return 1.0 - 2.0 * rank / (count - 1)
