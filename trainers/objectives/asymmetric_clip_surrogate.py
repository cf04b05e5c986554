"""Innovation 2.6 (the innovations notes): one clip range for positive advantages, another for all others."""

import torch
from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean


def asymmetric_clip_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, pos: float, neg: float, pessimistic: bool = True
) -> tuple[Tensor, Diagnostics]:
    """Return `max(-w * A, -clip(w, 1 - e, 1 + e) * A)`, (N, T), with e = pos if A > 0 and e = neg if A <= 0.

    pessimistic: whether the smaller of the two objectives counts, as in PPO. Then only the upper bound has an effect if
    A > 0 and only the lower bound if A < 0, as in `clip_surrogate` with clip_low = neg and clip_high = pos. Otherwise
    the loss is -clip(w, 1 - e, 1 + e) A, without gradient outside the range, as in `apply_asymmetric_clipping` of
    Verl_RL (which clips the response's mean ratio, here `amic`). Diagnostics: the shares of tokens with positive and
    with other advantages, and of clipped tokens.
    """
    positive = advantages > 0
    width = torch.where(positive, ratio.new_tensor(pos), ratio.new_tensor(neg))
    bounded = torch.minimum(torch.maximum(ratio, 1 - width), 1 + width)
    unclipped, clipped = -ratio * advantages, -bounded * advantages
    decides = clipped > unclipped if pessimistic else clipped != unclipped
    diagnostics: Diagnostics = {
        "policy/clip_fraction": Mean.of(decides, mask),
        "asymmetric/pos_advantage_ratio": Mean.of(positive, mask),
        "asymmetric/neg_advantage_ratio": Mean.of(~positive, mask),
    }
    return torch.maximum(unclipped, clipped) if pessimistic else clipped, diagnostics
