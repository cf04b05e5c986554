"""Reward mode `hybrid_separated`, which Lever-Plus calls `hybrid` (`reward_utils.py` at 78592f6)."""

from typing import Any

from torch import Tensor


def hybrid_separated_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards (Q, N): `alpha * gain + (1 - alpha) * (2 * correct + acc_score)`.

    The gain is `(info_score + 0.1) / 0.2`, clipped to [0, 1].
    """
    gain = ((info_score + 0.1) / 0.2).clamp(min=0.0, max=1.0)
    return settings.alpha * gain + (1.0 - settings.alpha) * (2.0 * correct + acc_score)
