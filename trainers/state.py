"""Everything that a resumed run needs, as named tensors: modules, optimisers, random generators."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def pack(
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
) -> dict[str, Tensor]:
    """Return the state of all of them under names that tell whose it is."""
    tensors = {f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}
    for name, optimizer in optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}/{index}/{slot}": value for slot, value in slots.items()}
    return tensors | {name: generator.get_state() for name, generator in generators.items()}


def unpack(
    tensors: Mapping[str, Tensor],
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
) -> None:
    """Put back what `pack` returned, in place."""
    for name, module in modules.items():
        module.load_state_dict(_below(tensors, name))
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in _below(tensors, name).items():
            index, slot = key.split("/")
            state.setdefault(int(index), {})[slot] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for name, generator in generators.items():
        generator.set_state(tensors[name])


def _below(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
