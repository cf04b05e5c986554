"""Entropy of the policy's next-token distribution."""

import torch
from torch import Tensor


def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy -sum_v p_v log p_v of logits (..., V): (...), nats; exact, not the estimate -log p(y_t)."""
    return torch.logsumexp(logits, -1) - (logits.softmax(-1) * logits).sum(-1)
