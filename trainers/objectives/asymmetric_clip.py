"""Innovation 2.6: one clip range for tokens whose advantage is positive, another for the rest."""

import torch
from torch import Tensor

from trainers.objectives.aggregation import masked_mean


def surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, pos: float, neg: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return max(-w A, -clip(w, 1 - e, 1 + e) A) with e = pos where A > 0 and e = neg where A <= 0: (B, T).

    Diagnostics: the share of tokens in either regime (they add up to 1), and of tokens at which the bound decides.
    """
    positive = advantages > 0
    width = torch.where(positive, pos, neg).to(ratio.dtype)
    unclipped = -ratio * advantages
    clipped = -torch.minimum(torch.maximum(ratio, 1 - width), 1 + width) * advantages
    share = masked_mean(positive.to(ratio.dtype), mask)
    diagnostics = {
        "policy/clip_fraction": masked_mean((clipped > unclipped).to(ratio.dtype), mask),
        "asymmetric/pos_advantage_ratio": share,
        "asymmetric/neg_advantage_ratio": masked_mean((~positive).to(ratio.dtype), mask),
    }
    return torch.maximum(unclipped, clipped), diagnostics
