"""Surrogate losses of a ratio and an advantage, per token."""

import torch
from torch import Tensor

from trainers.objectives.diagnostics import Diagnostics, Mean


# The clipped surrogate of PPO (arXiv 1707.06347, equation 7), with separate lower and upper bounds (DAPO).
def clip_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, low: float, high: float, dual: float | None = None
) -> tuple[Tensor, Diagnostics]:
    """Return the per-token loss max(-w A, -clip(w, 1 - low, 1 + high) A) for ratio w and advantages A (B, T).

    low = high is PPO; high > low is DAPO's clip-higher (arXiv 2503.14476, equation 10); `dual` bounds the loss of
    negative advantages by -dual A (arXiv 1912.09729; verl's `clip_ratio_c`, 3 by default; TRL's `delta`, none by
    default). Diagnostics: the shares of tokens at which the bound decides, together and for the lower and the upper
    bound.
    """
    unclipped = -ratio * advantages
    clipped = -ratio.clamp(1 - low, 1 + high) * advantages
    loss = torch.maximum(unclipped, clipped)
    if dual is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
    active = clipped > unclipped
    diagnostics: Diagnostics = {
        "policy/clip_fraction": Mean.of(active, mask),
        "policy/clip_fraction_low": Mean.of(active & (advantages < 0), mask),
        "policy/clip_fraction_high": Mean.of(active & (advantages > 0), mask),
    }
    return loss, diagnostics


# Innovation 2.6 (the innovations notes): one clip range for positive advantages, another for the rest.
def asymmetric_clip_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, pos: float, neg: float, pessimistic: bool = True
) -> tuple[Tensor, Diagnostics]:
    """Return max(-w A, -clip(w, 1 - e, 1 + e) A) with e = pos where A > 0 and e = neg where A <= 0: (B, T).

    With the minimum of the two objectives ("pessimistic", PPO) only the upper bound acts where A > 0 and only the lower
    one where A < 0: this is `clipped` with low = neg and high = pos. Without it the loss is -clip(w, 1 - e, 1 + e) A,
    as in `apply_asymmetric_clipping` of Verl_RL (there of the response's mean ratio, here `amic`): outside the range
    there is no gradient on either side. Diagnostics: the share of tokens in either regime (they add up to 1), and of
    tokens at which the bound decides.
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


# Innovation 2.4, PTRW (probabilistic trust region weighting): a Gaussian of the ratio instead of clipping.
def ptrw_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, sigma: float, detach_weight: bool = False
) -> tuple[Tensor, Diagnostics]:
    """Return -exp(-(s - 1)^2 / (2 sigma^2)) s A for sequence ratios s and advantages A (B, T).

    The gradient passes through the Gaussian, so its sign turns where s (s - 1) = sigma^2 (s = 1.039 for sigma 0.2):
    beyond, a response is pulled back towards the old policy. With `detach_weight` the Gaussian only damps.
    A large sigma gives the unclipped surrogate -s A. Diagnostics: means over the tokens.
    """
    trust = torch.exp(-((ratio - 1) ** 2) / (2 * sigma**2))
    if detach_weight:
        trust = trust.detach()
    loss = -trust * ratio * advantages
    diagnostics: Diagnostics = {
        "ptrw/trust_weights_mean": Mean.of(trust, mask),
        "ptrw/loss_mean": Mean.of(loss, mask),
    }
    return loss, diagnostics
