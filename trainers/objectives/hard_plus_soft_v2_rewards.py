"""Reward mode `hard_plus_soft_v2` (the demonstrations notes, scheme 1).

With weights of 1, positives get [2, 3] and negatives get [0, 1].
"""

from typing import Any

from torch import Tensor


def hard_plus_soft_v2_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards (Q, N): `soft_weight * acc_score + 2 * hard_weight * correct`."""
    return settings.soft_weight * acc_score + 2.0 * settings.hard_weight * correct
