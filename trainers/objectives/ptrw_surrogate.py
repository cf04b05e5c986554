"""Innovation 2.4, PTRW (probabilistic trust region weighting): a Gaussian weight of the ratio instead of clipping."""

import torch
from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean


def ptrw_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, sigma: float, detach_weight: bool = False
) -> tuple[Tensor, Diagnostics]:
    """Return the loss `-exp(-(s - 1)^2 / (2 * sigma^2)) * s * A` for sequence ratios s and advantages A (N, T).

    The gradient also passes through the Gaussian, so it changes sign at s (s - 1) = sigma^2 (s = 1.039 for sigma 0.2);
    above that ratio, a response is pulled back towards the old policy. With `detach_weight` the Gaussian only scales
    the gradient. A large sigma gives the unclipped surrogate -s A. Diagnostics: means over tokens.
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
