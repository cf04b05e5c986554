"""Reward mode `hard_plus_soft` (the demonstrations notes).

With weights of 1, positives get [1, 2] and negatives get [0, 1).
"""

from typing import Any

from torch import Tensor


def hard_plus_soft_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards (Q, N): `hard_weight * correct + soft_weight * acc_score`."""
    return settings.hard_weight * correct + settings.soft_weight * acc_score
