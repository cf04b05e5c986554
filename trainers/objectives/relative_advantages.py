"""Group-relative advantages without normalisation: `A_ij = R_ij - mean_j R_ij` (Dr. GRPO, arXiv 2503.20783)."""

import torch
from torch import Tensor


def relative_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Return the advantages (N,): rewards (N,), stored group by group, minus the mean of each group.

    A group with equal rewards gets exactly 0, even if its mean is rounded.
    """
    groups = rewards.view(-1, group_size)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    return torch.where(equal, 0.0, groups - groups.mean(1, keepdim=True)).view(-1)
