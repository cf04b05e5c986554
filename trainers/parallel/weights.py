"""The weights of a model that several ranks share: how each gets its part of them, and a whole copy to sample with.

One rank, the first, reads a model. The others run the same code with every parameter put on the meta device as soon as
a module has it: what was read of a file is let go, tensor by tensor, and what is tied is tied. Buffers are real, for no
file holds them: a rotary embedding's frequencies are computed. So are flags, hooks and settings.
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
    """Have modules that are made meanwhile, on the CPU, hold their parameters on the meta device."""
    register, to = nn.Module.register_parameter, nn.Module.to

    def on_meta(module: nn.Module, name: str, value: nn.Parameter | None) -> None:
        register(module, name, value)
        if value is not None and not value.is_meta:
            module._parameters[name] = nn.Parameter(value.detach().to("meta"), requires_grad=value.requires_grad)

    def stay(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None and device.type not in ("cpu", "meta"):  # meta: peft puts adapters where the weights are
            raise ValueError(f"a model without weights cannot be moved to {device}; shard it first")
        return module if dtype is None else to(module, dtype)

    nn.Module.register_parameter, nn.Module.to = on_meta, stay  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter", UserWarning)
            yield
    finally:
        nn.Module.register_parameter, nn.Module.to = register, to  # type: ignore[method-assign]


def send_weights(module: nn.Module, mesh: DeviceMesh, without: Collection[nn.Module] = ()) -> None:
    """Give every rank, on its device, the first one's weights of a module that are not sharded yet, `without` some."""
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
    """Return the state of the process's random generators."""
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()


def set_random_state(state: Any) -> None:
    """Put the random generators into a state, of another rank's: those that build nothing draw nothing."""
    python_state, numpy_state, torch_state = state
    random.setstate(python_state)
    numpy.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)


# A whole copy of a sharded model to sample with under bfloat16 autocast, at half of its float32 bytes.
#
# Autocast casts the weights of linear layers to bfloat16 wherever they are used; the copy has them so to begin with.
# Embeddings and norms stay in float32, in which autocast computes them. So it gives the numbers of the whole model.
FullTensor = Callable[[Tensor], Tensor]
Copies = dict[tuple[int, torch.dtype], Tensor]  # what was copied, by its number and the copy's precision
LINEAR = (nn.Linear, Conv1D)  # all that they do with weight and bias is a product that autocast casts


def rollout_copy(model: nn.Module, full_tensor: FullTensor) -> Any:
    """Return a copy of a model without hooks, that needs no other rank and does not follow the model's updates.

    full_tensor: returns all of a tensor of which this rank has a part. Tensors are gathered one by one, those of linear
    layers in bfloat16. A tied output matrix in float32 is two: one to look words up, one to multiply with.
    """
    return _bare(model, full_tensor, {}).eval()


# Functions, not closures: one that calls itself is a cycle, which would keep the weights until a garbage collection.
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
