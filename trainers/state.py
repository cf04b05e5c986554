"""Everything that a resumed run needs, as named tensors: modules, optimisers, random generators."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from trainers.ranks import ALONE, Ranks
from trainers.stage import Stage


@dataclass(frozen=True)
class State:
    """What a checkpoint of a run holds: what is learnt, its optimisers, random generators, and JSON values by name.

    `values` is the run's own: it changes them, `save` writes them and `restore` puts back what was written.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    generators: Mapping[str, torch.Generator] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def save(self, stage: Stage, step: int) -> None:
        """Write a checkpoint after `step` steps."""
        stage.save_checkpoint(step, pack(self.modules, self.optimizers, self.generators, stage.ranks), self.values)

    def restore(self, stage: Stage) -> int:
        """Go back to the stage's last checkpoint, if there is one; return the number of steps done."""
        found = stage.load_checkpoint()
        if found is None:
            return 0
        unpack(found.tensors, self.modules, self.optimizers, self.generators, stage.ranks)
        self.values.update(found.state)
        return found.step


def pack(
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """Return the state of all of them under names that tell whose it is; of several ranks the first has it."""
    tensors = {f"{name}/{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}
    for name, optimizer in optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}/{index}/{slot}": value for slot, value in slots.items()}
    tensors = {name: ranks.kept(tensor) for name, tensor in tensors.items()}
    return tensors | {name: generator.get_state() for name, generator in generators.items()}


def unpack(
    tensors: Mapping[str, Tensor],
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
    ranks: Ranks = ALONE,
) -> None:
    """Put back what `pack` returned, in place, on any number of ranks."""
    for name, module in modules.items():
        weights = module.state_dict()
        module.load_state_dict(
            {key: ranks.part(value, weights.get(key)) for key, value in below(tensors, name).items()}
        )
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for key, value in below(tensors, name).items():
            index, slot = key.split("/")
            whole = value.shape == parameters[int(index)].shape  # not a count of steps
            found = ranks.part(value, parameters[int(index)]) if whole else value
            state.setdefault(int(index), {})[slot] = found
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for name, generator in generators.items():
        generator.set_state(tensors[name])


def below(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `name/`, without that."""
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
