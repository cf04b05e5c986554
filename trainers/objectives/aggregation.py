"""Masked means, sums along a response, and the two ways in which per-token losses become one number.

Shapes everywhere in the objectives: B responses, T response positions; `mask` (B, T) is 1 (or True) where a response
has a token, its end-of-sequence token included.
"""

from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean"]


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of `values` (B, T) over the tokens of `mask` (B, T); 0 if there is no token."""
    mask = mask.to(values.dtype)
    return torch.where(mask > 0, values, 0.0).sum() / mask.sum().clamp(min=1.0)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over each response's tokens: (B, T), (B, T) -> (B,); 0 for an empty response."""
    mask = mask.to(values.dtype)
    return torch.where(mask > 0, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1.0)


def decayed_sum(values: Tensor, decay: float) -> Tensor:
    """Return y_t = x_t + decay y_{t-1} of `values` x (B, T), 0 <= decay <= 1: (B, T).

    A parallel prefix sum (Hillis and Steele 1986) takes log2 T steps; a loop over tokens waits for a device T times.
    """
    total, reach = values, 1
    while reach < values.shape[1]:
        total = torch.cat([total[:, :reach], total[:, reach:] + decay**reach * total[:, :-reach]], 1)
        reach *= 2
    return total


def loss_units(mask: Tensor, aggregation: Aggregation) -> int:
    """Return by how much `aggregate` divides: the tokens of `mask`, or its responses that have any."""
    return int(mask.sum() if aggregation == "token_mean" else (mask.sum(-1) > 0).sum())


def aggregate(values: Tensor, mask: Tensor, aggregation: Aggregation, *, units: float | None = None) -> Tensor:
    """Return one number from per-token `values` (B, T).

    token_mean: every token counts the same (DAPO, arXiv 2503.14476, equation 8; verl `token-mean`; TRL `dapo`, `bnpo`).
    sequence_mean: every response counts the same (GRPO, arXiv 2402.03300, equation 3; verl `seq-mean-token-mean`;
    TRL `grpo`). `units` replaces the number to divide by: with that of a whole minibatch, the losses of its
    micro-batches add up to the loss of the minibatch.
    """
    units = max(loss_units(mask, aggregation), 1) if units is None else units
    if aggregation == "token_mean":
        return torch.where(mask > 0, values, 0.0).sum() / units
    if aggregation == "sequence_mean":
        return sequence_mean(values, mask).sum() / units
    raise ValueError(f"aggregation = {aggregation!r}: expected token_mean or sequence_mean")
