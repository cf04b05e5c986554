"""Group-normalised advantages: A_ij = (R_ij - mean_j R_ij) / (std_j R_ij + eps) (GRPO, arXiv 2402.03300)."""

import torch
from torch import Tensor

EPSILON = 1e-8  # verl adds 1e-6 and TRL 1e-4: a difference of one part in ten thousand at a standard deviation of 1


def normalized_advantages(rewards: Tensor, group_size: int, epsilon: float = EPSILON) -> Tensor:
    """Return z-scores (N,) of rewards (N,) within their groups, by the sample (n - 1) standard deviation.

    verl and TRL use the sample standard deviation too. A group whose rewards are all equal gets exactly 0; a group of
    one has no spread and is an error.
    """
    if group_size < 2:
        raise ValueError(f"group_size = {group_size}: normalised advantages need at least two responses per prompt")
    groups = rewards.view(-1, group_size)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    scores = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + epsilon)
    return torch.where(equal, 0.0, scores).view(-1)
