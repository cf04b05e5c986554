"""A model without its weights, as all ranks but the first build it, and its weights, one after the other.

They run the code that the first runs, with every parameter put on the meta device as soon as a module has it: what was
read of a file is let go, tensor by tensor, and what is tied is tied. Buffers are real, for no file holds them: a rotary
embedding's frequencies are computed. So are flags, hooks and settings.
"""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


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
            raise ValueError(f"a model without weights cannot be moved to {device}: shard it first")
        return module if dtype is None else to(module, dtype)

    nn.Module.register_parameter, nn.Module.to = on_meta, stay  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter", UserWarning)
            yield
    finally:
        nn.Module.register_parameter, nn.Module.to = register, to  # type: ignore[method-assign]


def send_weights(module: nn.Module, mesh: DeviceMesh) -> None:
    """Give every rank the first one's weights of a module that are not sharded yet, on its device."""
    sent: dict[nn.Parameter, nn.Parameter] = {}
    first = mesh.get_rank() == 0
    for each in module.modules():
        for name, parameter in each._parameters.items():
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
    of_python, of_numpy, of_torch = state
    random.setstate(of_python)
    numpy.random.set_state(of_numpy)
    torch.set_rng_state(of_torch)
