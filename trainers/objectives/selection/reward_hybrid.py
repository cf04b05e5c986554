"""Reward mode `hybrid` (seed 003, scheme 2): information gain and correctness mixed."""

from typing import Any

from torch import Tensor

from trainers.objectives.selection.missing import missing_as_zero


def rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return alpha gain + (1 - alpha) (correct + acc_score / 2), (Q, N), gain = min(1, info_scale info_score).

    What is missing counts as 0. The source assumes gains of 0 to 0.1, so that info_scale = 10 fills [0, 1]; larger
    gains all count as 1. In the source's code a loss has no lower bound; the text of its scheme 2 normalises the gain
    to [0, 1] (`normalize_beam_score`), which is info_floor = 0.

    Args:
        correct: 1 where the query was answered right after the sequence, else 0; (Q, N), NaN where missing.
        acc_score: soft accuracy in [0, 1]; (Q, N), NaN where missing.
        info_score: gain over zero-shot, in the unit of `reward.gain`; (Q, N), NaN where missing.
        settings: `reward` of the configuration: `alpha`, `info_scale`, `info_floor`.
    """
    gain = (settings.info_scale * missing_as_zero(info_score)).clamp(min=settings.info_floor, max=1.0)
    right = missing_as_zero(correct) + 0.5 * missing_as_zero(acc_score)
    return settings.alpha * gain + (1.0 - settings.alpha) * right
