"""Group-relative advantages without normalisation: A_ij = R_ij - mean_j R_ij (Dr. GRPO, arXiv 2503.20783)."""

import torch
from torch import Tensor


def relative_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Return rewards (N,), the G responses of a prompt side by side, minus the mean of their group: (N,).

    A group whose rewards are all equal gets exactly 0, whatever the rounding of its mean.
    """
    groups = rewards.view(-1, group_size)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    return torch.where(equal, 0.0, groups - groups.mean(1, keepdim=True)).view(-1)
