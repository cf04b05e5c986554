"""Reward mode `separated`: a gap between positives (at least 2) and negatives (at most 1), whatever the weights."""

from typing import Any

import torch
from torch import Tensor

from trainers.objectives.selection.missing import missing_as_zero


def rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return max(2, 2 hard_weight + soft_weight acc_score) of positives, (Q, N); what is missing counts as 0.

    Negatives get min(1, soft_weight acc_score).

    At weights of 1 this is `hard_plus_soft_v2`; with others it keeps the gap where that formula would close it.

    Args:
        correct: 1 where the query was answered right after the sequence, else 0; (Q, N), NaN where missing.
        acc_score: soft accuracy in [0, 1]; (Q, N), NaN where missing.
        info_score: gain over zero-shot, in the unit of `reward.gain`; (Q, N), NaN where missing.
        settings: `reward` of the configuration.
    """
    positive = missing_as_zero(correct) >= 1
    soft = settings.soft_weight * missing_as_zero(acc_score)
    return torch.where(positive, (2.0 * settings.hard_weight + soft).clamp(min=2.0), soft.clamp(max=1.0))
