"""Reward mode `hybrid` (seed 003, scheme 2): information gain and correctness mixed."""

from typing import Any

from torch import Tensor

from trainers.objectives.selection_missing import missing_as_zero


def rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return alpha min(1, info_scale info_score) + (1 - alpha) (correct + acc_score / 2), (Q, N).

    What is missing counts as 0.

    The source assumes gains of 0 to 0.1, so that info_scale = 10 fills [0, 1]. Larger gains all count as 1; a loss has
    no lower bound, as in the source.

    Args:
        correct: 1 where the query was answered right after the sequence, else 0; (Q, N), NaN where missing.
        acc_score: soft accuracy in [0, 1]; (Q, N), NaN where missing.
        info_score: gain in the right answer's log-probability over zero-shot, nats; (Q, N), NaN where missing.
        settings: `hard_weight`, `soft_weight`, `alpha`, `info_scale`.
    """
    gain = (settings.info_scale * missing_as_zero(info_score)).clamp(max=1.0)
    right = missing_as_zero(correct) + 0.5 * missing_as_zero(acc_score)
    return settings.alpha * gain + (1.0 - settings.alpha) * right
