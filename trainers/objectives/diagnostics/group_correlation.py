"""Whether scores rank the responses to one prompt as their quality does."""

import torch
from torch import Tensor


def within_group_correlation(scores: Tensor, quality: Tensor, group_size: int) -> Tensor:
    """Return the Pearson correlation of scores and quality, both (B * G,), after each group's mean is taken off.

    Differences between prompts do not count: only those within a group reach the advantages. NaN where no group has
    a spread in both.
    """
    x, y = (v.double().view(-1, group_size) for v in (scores, quality))
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    # A group of equal values has rounding noise around its mean, not exactly 0.
    x, y = (torch.where(v.abs().amax(1, keepdim=True) > 1e-9, v, 0.0) for v in (x, y))
    scale = (x.square().sum() * y.square().sum()).sqrt()
    return torch.where(scale > 0, (x * y).sum() / scale, torch.nan)
