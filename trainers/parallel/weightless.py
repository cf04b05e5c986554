"""A model without its weights, as the first rank sends it to the others, and its weights, one after the other.

A rank that built the model itself would hold all of it in memory, or would have to build it on the meta device as
each of its makers does, and then to compute again what is not a weight: a rotary embedding's frequencies are a buffer
that no file holds, which `to_empty` leaves as it finds the memory. So the others get the first one's modules as they
are, with settings, flags, hooks and buffers, and with parameters on the meta device; what was tied is tied there too.
"""

import io
import marshal
import pickle
import random
from importlib import import_module
from types import CellType, FunctionType
from typing import Any

import numpy
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


def dump(model: Any, here: object) -> bytes:
    """Return a model without its weights. here: an object of which each rank has its own, which the model may hold."""
    buffer = io.BytesIO()
    _Sender(buffer, here).dump(model)
    return buffer.getvalue()


def load(content: bytes, here: object, device: torch.device) -> Any:
    """Return what `dump` was given, with parameters on the meta device. here, device: those of this rank."""
    return _Receiver(io.BytesIO(content), here, device).load()


class _Sender(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, here: object) -> None:
        super().__init__(buffer)
        self._here = here

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for a value that is not sent."""
        if value is self._here:
            return ("here",)
        if isinstance(value, nn.Parameter):
            return "parameter", id(value), tuple(value.shape), value.dtype, value.requires_grad
        if isinstance(value, torch.device) and value.type != "cpu":
            return ("device",)
        return None

    def reducer_override(self, value: Any) -> Any:
        """Return how a function is made that was defined in another, as some hooks of transformers are."""
        if not isinstance(value, FunctionType) or "<" not in value.__qualname__:
            return NotImplemented
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return _function, (marshal.dumps(value.__code__), value.__module__, value.__defaults__, cells)


def _function(code: bytes, module: str, defaults: tuple[Any, ...] | None, cells: list[Any]) -> FunctionType:
    names, closure = vars(import_module(module)), tuple(map(CellType, cells))
    return FunctionType(marshal.loads(code), names, None, defaults, closure)


class _Receiver(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, here: object, device: torch.device) -> None:
        super().__init__(buffer)
        self._here, self._device = here, device
        self._parameters: dict[int, nn.Parameter] = {}  # by number, so that tied ones are one

    def persistent_load(self, sent: Any) -> Any:
        """Return this rank's value."""
        match sent:
            case ("here",):
                return self._here
            case ("device",):
                return self._device
        _, number, shape, dtype, learns = sent
        if number not in self._parameters:
            empty = torch.empty(shape, dtype=dtype, device="meta")
            self._parameters[number] = nn.Parameter(empty, requires_grad=learns)
        return self._parameters[number]


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
