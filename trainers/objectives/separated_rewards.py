"""Reward mode `separated`: a gap between positives (at least 2) and negatives (at most 1), whatever the weights."""

from typing import Any

import torch
from torch import Tensor


def separated_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return max(2, 2 hard_weight + soft_weight acc_score) of positives, (Q, N).

    Negatives get min(1, soft_weight acc_score).

    At weights of 1 this is `hard_plus_soft_v2`; with others it keeps the gap where that formula would close it.
    """
    positive = correct >= 1
    soft = settings.soft_weight * acc_score
    return torch.where(positive, (2.0 * settings.hard_weight + soft).clamp(min=2.0), soft.clamp(max=1.0))
