"""Group-normalised advantages: `A_ij = (R_ij - mean_j R_ij) / (std_j R_ij + eps)` (GRPO, arXiv 2402.03300)."""

import torch
from torch import Tensor

EPSILON = 1e-8  # verl adds 1e-6, TRL 1e-4


def normalized_advantages(rewards: Tensor, group_size: int, epsilon: float = EPSILON) -> Tensor:
    """Return the z-scores (N,) of rewards (N,) within their groups, with the sample (n - 1) standard deviation.

    verl and TRL use the sample standard deviation too. Groups with equal rewards get exactly 0. Raises ValueError for
    groups of one response.
    """
    if group_size < 2:
        raise ValueError(f"group_size {group_size} is too small for normalised advantages; use at least 2")
    groups = rewards.view(-1, group_size)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    scores = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + epsilon)
    return torch.where(equal, 0.0, scores).view(-1)
