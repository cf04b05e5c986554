"""Reward mode `legacy`: the information gain, as in the selectors before correctness was a reward (seed 003)."""

from typing import Any

import torch
from torch import Tensor

from trainers.objectives.selection.missing import missing_as_zero


def rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return info_weight info_score + correct_weight right, (Q, N); what is missing counts as 0.

    right is `correct`, and `acc_score` where that is missing, as in the source's code. Its scheme 5, only correctness,
    is info_weight = 0 and correct_weight = 1 (REWARD_ALPHA and REWARD_BETA).

    Args:
        correct: 1 where the query was answered right after the sequence, else 0; (Q, N), NaN where missing.
        acc_score: soft accuracy in [0, 1]; (Q, N), NaN where missing.
        info_score: gain over zero-shot, in the unit of `reward.gain`; (Q, N), NaN where missing.
        settings: `reward` of the configuration: `info_weight`, `correct_weight`.
    """
    right = torch.where(correct.isnan(), missing_as_zero(acc_score), correct)
    return settings.info_weight * missing_as_zero(info_score) + settings.correct_weight * right
