"""Reward mode `legacy`: the information gain, as in the selectors before correctness was a reward (the notes)."""

from typing import Any

from torch import Tensor


def legacy_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return info_weight info_score + correct_weight correct, (Q, N).

    The source's scheme 5, only correctness, is info_weight = 0 and correct_weight = 1 (REWARD_ALPHA and REWARD_BETA).
    """
    return settings.info_weight * info_score + settings.correct_weight * correct
