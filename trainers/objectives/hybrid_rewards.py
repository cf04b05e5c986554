"""Reward mode `hybrid` (the demonstrations notes, scheme 2): a weighted sum of information gain and correctness."""

from typing import Any

from torch import Tensor


def hybrid_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return the rewards (Q, N): `alpha * gain + (1 - alpha) * (correct + acc_score / 2)`.

    The gain is `min(1, info_scale * info_score)`.

    The source assumes gains from 0 to 0.1, which info_scale = 10 maps to [0, 1]. Its code has no lower bound of the
    gain; the text of scheme 2 normalises gains to [0, 1] (`normalize_beam_score`), which is info_floor = 0.
    """
    gain = (settings.info_scale * info_score).clamp(min=settings.info_floor, max=1.0)
    right = correct + 0.5 * acc_score
    return settings.alpha * gain + (1.0 - settings.alpha) * right
