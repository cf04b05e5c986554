"""Weights of a model on several ranks: how each rank gets its part, and unsharded copies for sampling.

Only the first rank keeps the weights that it reads. The other ranks run the same code but move every parameter to the
meta device as soon as a module gets it, which frees its memory and keeps ties between parameters. Buffers, such as the
frequencies of rotary embeddings, are computed on all ranks, and flags, hooks and settings are set on all.
"""

import random
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers.pytorch_utils import Conv1D


@contextmanager
def without_weights() -> Iterator[None]:
    """Within the `with` block, put the parameters of new modules on the meta device."""
    register, to = nn.Module.register_parameter, nn.Module.to

    def on_meta(module: nn.Module, name: str, value: nn.Parameter | None) -> None:
        register(module, name, value)
        if value is not None and not value.is_meta:
            module._parameters[name] = nn.Parameter(value.detach().to("meta"), requires_grad=value.requires_grad)

    def stay(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None and device.type not in ("cpu", "meta"):  # peft moves adapters to the weights' meta device
            raise ValueError(f"a model without weights cannot be moved to {device}; shard the model first")
        return module if dtype is None else to(module, dtype)

    nn.Module.register_parameter, nn.Module.to = on_meta, stay  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter", UserWarning)
            yield
    finally:
        nn.Module.register_parameter, nn.Module.to = register, to  # type: ignore[method-assign]


def send_weights(module: nn.Module, mesh: DeviceMesh, without: Collection[nn.Module] = ()) -> None:
    """Send the first rank's unsharded weights of a module to all ranks' devices, except modules in `without`."""
    sent: dict[nn.Parameter, nn.Parameter] = {}
    first = mesh.get_rank() == 0
    for each in module.modules():
        for name, parameter in () if each in without else each._parameters.items():
            if parameter is None or isinstance(parameter, DTensor):
                continue
            if parameter not in sent:
                data = parameter.detach().to(mesh.device_type).contiguous() if first else _empty(parameter, mesh)
                distributed.broadcast(data, src=0, group=mesh.get_group())
                sent[parameter] = nn.Parameter(data, requires_grad=parameter.requires_grad)
            each._parameters[name] = sent[parameter]


def _empty(like: Tensor, mesh: DeviceMesh) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=mesh.device_type)


def random_state() -> Any:
    """Return the states of the process's global random generators."""
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()


def set_random_state(state: Any) -> None:
    """Set the global random generators to a state, such as that of another rank."""
    python_state, numpy_state, torch_state = state
    random.setstate(python_state)
    numpy.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)


# Unsharded copies of a sharded model for sampling under bfloat16 autocast, with half the bytes of float32.
#
# Autocast would cast the weights of linear layers to bfloat16 at each use; in the copy they are bfloat16 already.
# Embeddings and norms stay float32, in which autocast computes them, so the copy gives the same numbers as the model.
FullTensor = Callable[[Tensor], Tensor]
Copies = dict[tuple[int, torch.dtype], Tensor]  # copied tensors by the original's id and the copy's type
LINEAR = (nn.Linear, Conv1D)  # modules that use weight and bias only in products that autocast casts


def rollout_copy(model: nn.Module, full_tensor: FullTensor) -> Any:
    """Return an unsharded copy of a model with its current weights and no hooks, which runs without other ranks.

    full_tensor: function that returns the unsharded tensor. Tensors are gathered one by one, those of linear layers in
    bfloat16. A tied output matrix in float32 becomes two tensors: a float32 embedding and a bfloat16 output matrix.
    """
    return _bare(model, full_tensor, {}).eval()


# Not a closure: a closure that calls itself is a cycle, which would keep the weights until a garbage collection.
def _bare(module: nn.Module, full_tensor: FullTensor, copies: Copies) -> nn.Module:
    kind: Any = next(each for each in type(module).__mro__ if not issubclass(each, FSDPModule))
    low = kind in LINEAR
    made: nn.Module = kind.__new__(kind)
    hooks: dict[str, Any] = {name: OrderedDict() for name in vars(module) if "_hooks" in name}
    made.__dict__ = vars(module) | hooks
    made._modules = {name: child and _bare(child, full_tensor, copies) for name, child in module._modules.items()}
    made._parameters = {
        name: value if value is None else nn.Parameter(_copy(value, low, full_tensor, copies), requires_grad=False)
        for name, value in module._parameters.items()
    }
    made._buffers = {
        name: value if value is None else _copy(value, False, full_tensor, copies)
        for name, value in module._buffers.items()
    }
    return made


def _copy(value: Tensor, low: bool, full_tensor: FullTensor, copies: Copies) -> Tensor:
    dtype = torch.bfloat16 if low and value.dtype == torch.float32 else value.dtype
    name = (id(value), dtype)
    if name not in copies:
        copies[name] = full_tensor(value.detach().to(dtype, copy=True))  # cast before it is sent
    return copies[name]
