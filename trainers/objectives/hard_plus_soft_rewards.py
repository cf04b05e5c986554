"""Reward mode `hard_plus_soft` (the notes): positives [1, 2] and negatives [0, 1) at weights of 1."""

from typing import Any

from torch import Tensor


def hard_plus_soft_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards hard_weight correct + soft_weight acc_score, (Q, N)."""
    return settings.hard_weight * correct + settings.soft_weight * acc_score
