"""Reward mode `separated`: whatever the weights, positives get at least 2 and negatives at most 1."""

from typing import Any

import torch
from torch import Tensor


def separated_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards (Q, N), which are at least 2 for positives and at most 1 for negatives.

    Positives get `max(2, 2 * hard_weight + soft_weight * acc_score)`, negatives `min(1, soft_weight * acc_score)`. With
    weights of 1 they are those of `hard_plus_soft_v2`.
    """
    positive = correct >= 1
    soft = settings.soft_weight * acc_score
    return torch.where(positive, (2.0 * settings.hard_weight + soft).clamp(min=2.0), soft.clamp(max=1.0))
