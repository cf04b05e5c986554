"""Everything that a resumed run needs, as named tensors: modules, optimisers, random generators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ablation.runner.ranks import ALONE, Ranks
from trainers.running.stage import Stage


@dataclass(frozen=True)
class State:
    """What a checkpoint of a run holds: what is learnt, its optimisers, random generators, and JSON values by name.

    `values` is the run's own, a dataclass or a dict: it changes them, `save` writes them and `restore` puts back what
    was written.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    generators: Mapping[str, torch.Generator] = field(default_factory=dict)
    values: Any = field(default_factory=dict)

    def save(self, stage: Stage, step: int) -> None:
        """Write a checkpoint after `step` steps."""
        stage.save_checkpoint(step, pack(self.modules, self.optimizers, self.generators), self._named_values)

    def restore(self, stage: Stage) -> int:
        """Go back to the stage's last checkpoint, if there is one; return the number of steps done."""
        found = stage.load_checkpoint()
        if found is None:
            return 0
        unpack(found.tensors, self.modules, self.optimizers, self.generators, stage.ranks)
        self._named_values.update(found.state)
        stage.ranks.gather(None)  # all have read their parts
        return found.step

    @property
    def _named_values(self) -> dict[str, Any]:
        return vars(self.values) if is_dataclass(self.values) else self.values


def pack(
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator],
) -> dict[str, Tensor]:
    """Return the state of all of them under names that tell whose it is; of sharded tensors what is here."""
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
    ranks: Ranks = ALONE,
) -> None:
    """Put back what `pack` returned, in place, on any number of ranks."""
    for name, module in modules.items():
        weights = module.state_dict()
        keys = {key: f"{name}/{key}" for key in names_below(tensors, name)}
        module.load_state_dict({key: ranks.part(tensors, full, weights.get(key)) for key, full in keys.items()})
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for key in names_below(tensors, name):
            index, slot = key.split("/")
            found = ranks.part(tensors, f"{name}/{key}", parameters[int(index)])
            state.setdefault(int(index), {})[slot] = found
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for name, generator in generators.items():
        generator.set_state(tensors[name])


def names_below(tensors: Mapping[str, Tensor], name: str) -> list[str]:
    """Return the names that begin with `name/`, without that."""
    return [key.removeprefix(f"{name}/") for key in tensors if key.startswith(f"{name}/")]


def below(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `name/`, without that."""
    return {key: tensors[f"{name}/{key}"] for key in names_below(tensors, name)}


def run_steps(
    stage: Stage,
    step: Callable[[int], object],
    *,
    steps: int,
    first: int = 0,
    state: State | None = None,
    checkpoint_every: int | None = None,
    enough: Callable[[int], bool] | None = None,
) -> None:
    """Call `step` with the numbers from `first` up to `steps`, and report progress after each.

    state: written after every `checkpoint_every` steps, but not after the last; without one of the two there
    are not checkpoints. enough: asked after each step, with the number of steps taken, whether to end here.
    """
    for number in range(first, steps):
        step(number)
        done = number + 1
        if enough is not None and enough(done):
            stage.progress(done, done)
            return
        stage.progress(done, steps)
        if state is not None and checkpoint_every and done % checkpoint_every == 0 and done < steps:
            state.save(stage, done)
