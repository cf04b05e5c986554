"""Reward mode `hybrid` (the notes, scheme 2): information gain and correctness mixed."""

from typing import Any

from torch import Tensor


def hybrid_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return alpha gain + (1 - alpha) (correct + acc_score / 2), (Q, N), gain = min(1, info_scale info_score).

    The source assumes gains of 0 to 0.1, so that info_scale = 10 fills [0, 1]; larger gains all count as 1. In the
    source's code a loss has no lower bound; the text of its scheme 2 normalises the gain to [0, 1]
    (`normalize_beam_score`), which is info_floor = 0.
    """
    gain = (settings.info_scale * info_score).clamp(min=settings.info_floor, max=1.0)
    right = correct + 0.5 * acc_score
    return settings.alpha * gain + (1.0 - settings.alpha) * right
