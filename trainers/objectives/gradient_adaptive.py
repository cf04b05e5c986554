"""Innovation 2.2: token weights that grow with |log p|, an approximation of the size of the token's gradient."""

import torch
from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean, Variance


def gradient_adaptive_weights(logps: Tensor, mask: Tensor, *, temperature: float) -> tuple[Tensor, Diagnostics]:
    """Return `c_t = L * softmax_t(|logps_t| / temperature)` (N, T), detached, with mean 1 over a response's L tokens.

    A large temperature gives equal weights. Diagnostics: the mean of |log p| and the variance of the weights.
    """
    size = logps.detach().abs()
    mask = mask.bool()
    scores = (size / temperature).masked_fill(~mask, -torch.inf)
    length = mask.sum(-1, keepdim=True)
    weights = torch.where(mask, length * scores.softmax(-1), 0.0)
    diagnostics: Diagnostics = {
        "gradient_adaptive/avg_gradient_norm": Mean.of(size, mask),
        "gradient_adaptive/weight_variance": Variance.of(weights, mask),
    }
    return weights, diagnostics
