"""Reward mode `soft_only`: the soft accuracy, and nothing else."""

from typing import Any

from torch import Tensor

from trainers.objectives.selection.missing import missing_as_zero


def rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return soft_weight acc_score, (Q, N); what is missing counts as 0.

    Args:
        correct: 1 where the query was answered right after the sequence, else 0; (Q, N), NaN where missing.
        acc_score: soft accuracy in [0, 1]; (Q, N), NaN where missing.
        info_score: gain over zero-shot, in the unit of `reward.gain`; (Q, N), NaN where missing.
        settings: `reward` of the configuration.
    """
    return settings.soft_weight * missing_as_zero(acc_score)
