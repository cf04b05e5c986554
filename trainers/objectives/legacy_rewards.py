"""Reward mode `legacy`: mainly the information gain, as before correctness was rewarded (the demonstrations notes)."""

from typing import Any

from torch import Tensor


def legacy_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards (Q, N): `info_weight * info_score + correct_weight * correct`.

    The weights are the source's REWARD_ALPHA and REWARD_BETA; 0 and 1 give its scheme 5, correctness only.
    """
    return settings.info_weight * info_score + settings.correct_weight * correct
