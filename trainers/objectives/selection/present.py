"""Groups of unequal size: queries have different numbers of sequences, and a mask says which places are filled."""

import torch
from torch import Tensor


def everything(values: Tensor) -> Tensor:
    """Return the mask (Q, N) of a table without empty places."""
    return torch.ones_like(values, dtype=torch.bool)


def mean_present(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean of each row's filled places, (Q, 1) of values (Q, N)."""
    return torch.where(present, values, 0.0).sum(-1, keepdim=True) / present.sum(-1, keepdim=True)


def all_equal(values: Tensor, present: Tensor) -> Tensor:
    """Return whether a row's filled places hold one value, (Q, 1) bool; a row of one place does."""
    low = torch.where(present, values, torch.inf).amin(-1, keepdim=True)
    high = torch.where(present, values, -torch.inf).amax(-1, keepdim=True)
    return low == high


def positions(values: Tensor, present: Tensor, *, descending: bool) -> Tensor:
    """Return the place of each filled place in the sorted row, from 0, (Q, N); the first of equals comes first.

    Empty places come last.
    """
    sortable = values.masked_fill(~present, -torch.inf if descending else torch.inf)
    order = sortable.argsort(dim=-1, descending=descending, stable=True)
    return order.argsort(dim=-1).to(values.dtype)


def midranks(values: Tensor, present: Tensor) -> Tensor:
    """Return how many filled places of the row are higher, (Q, N); equal values share the mean of their ranks.

    The highest value has rank 0. Empty places get a rank that means nothing.
    """
    others = present[..., None, :]
    better = (others & (values[..., None, :] > values[..., :, None])).sum(-1)
    ties = (others & (values[..., None, :] == values[..., :, None])).sum(-1) - 1
    return better.to(values.dtype) + 0.5 * ties.clamp(min=0)
