"""Group-relative advantages divided by the spread of the whole batch (RL_HAND/gspo/gspo.py, `train_step`)."""

import torch
from torch import Tensor

from trainers.objectives.normalized_advantages import EPSILON
from trainers.objectives.relative_advantages import relative_advantages


def batch_normalized_advantages(rewards: Tensor, group_size: int, epsilon: float = EPSILON) -> Tensor:
    """Return the advantages (N,): rewards minus their group's mean, divided by the batch's standard deviation.

    It is the sample standard deviation of all N differences. In a group with equal rewards advantages are exactly 0.
    """
    advantages = relative_advantages(rewards, group_size)
    return advantages / (torch.std(advantages) + epsilon)
