"""A whole copy of a sharded model to sample with under bfloat16 autocast, at half of its float32 bytes.

Autocast casts the weights of linear layers to bfloat16 wherever they are used; the copy has them so to begin with.
Embeddings and norms stay in float32, in which autocast computes them. So it gives the numbers of the whole model.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers.pytorch_utils import Conv1D

Whole = Callable[[Tensor], Tensor]
Known = dict[tuple[int, torch.dtype], Tensor]  # what was copied, by its number and the copy's precision
LINEAR = (nn.Linear, Conv1D)  # all that they do with weight and bias is a product that autocast casts


def rollout_copy(model: nn.Module, whole: Whole) -> Any:
    """Return a copy of a model without hooks, that needs no other rank and does not follow the model's updates.

    whole: returns all of a tensor of which this rank has a part (`Ranks.whole`). Tensors are gathered one by one, those
    of linear layers in bfloat16. A tied output matrix in float32 is two: one to look words up, one to multiply with.
    """
    return _bare(model, whole, {}).eval()


# Functions, not closures: one that calls itself is a cycle, which would keep the weights until a garbage collection.
def _bare(module: nn.Module, whole: Whole, known: Known) -> nn.Module:
    kind: Any = next(each for each in type(module).__mro__ if not issubclass(each, FSDPModule))
    low = kind in LINEAR
    made: nn.Module = kind.__new__(kind)
    hooks: dict[str, Any] = {name: OrderedDict() for name in vars(module) if "_hooks" in name}
    made.__dict__ = vars(module) | hooks
    made._modules = {name: child and _bare(child, whole, known) for name, child in module._modules.items()}
    made._parameters = {
        name: value if value is None else nn.Parameter(_copy(value, low, whole, known), requires_grad=False)
        for name, value in module._parameters.items()
    }
    made._buffers = {
        name: value if value is None else _copy(value, False, whole, known) for name, value in module._buffers.items()
    }
    return made


def _copy(value: Tensor, low: bool, whole: Whole, known: Known) -> Tensor:
    dtype = torch.bfloat16 if low and value.dtype == torch.float32 else value.dtype
    name = (id(value), dtype)
    if name not in known:
        known[name] = whole(value.detach().to(dtype, copy=True))  # cast before it is sent
    return known[name]
