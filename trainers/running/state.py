"""State of a training run as named tensors for checkpoints: modules, optimisers and random generators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainers.running.checkpoint import Checkpoint
from trainers.running.stage import Stage

States = dict[int, dict[str, Tensor]]  # an optimizer's states: parameter number -> slot -> tensor


@dataclass(frozen=True)
class State:
    """State of a run for checkpoints: modules, optimisers, random generators and JSON values.

    values: a dataclass or dict that the run changes in place; `save` writes it and `restore` sets it.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    generators: Mapping[str, torch.Generator] = field(default_factory=dict)
    values: Any = field(default_factory=dict)

    def save(self, stage: Stage, step: int) -> None:
        """Write a checkpoint after `step` steps."""
        stage.save_checkpoint(step, self.tensors(), self._named_values)

    def restore(self, stage: Stage) -> int:
        """Restore the stage's last checkpoint, if one exists; return the number of steps done."""
        saved = stage.load_checkpoint()
        if saved is None:
            return 0
        self.load(saved)
        stage.ranks.gather(None)  # no rank continues before all have read their parts
        return saved.step

    def load(self, saved: Checkpoint) -> None:
        """Restore all state from a checkpoint, in place and on any number of ranks."""
        states = {name: _states(optimizer, saved, name) for name, optimizer in self.optimizers.items()}
        tensors = self.tensors(states)
        saved.tensors.read(tensors)
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states[name]})
        for name, generator in self.generators.items():
            generator.set_state(tensors[name])
        self._named_values.update(saved.state)

    def tensors(self, states: Mapping[str, States] | None = None) -> dict[str, Tensor]:
        """Return all states by names such as `policy_optimizer/0/exp_avg`; a sharded tensor has only this rank's part.

        states: {name: states} of the optimizers; None: their current states.
        """
        tensors = {
            f"{name}/{key}": value for name, each in self.modules.items() for key, value in each.state_dict().items()
        }
        for name, optimizer in self.optimizers.items():
            state = optimizer.state_dict()["state"] if states is None else states[name]
            tensors |= {f"{name}/{index}/{slot}": v for index, slots in state.items() for slot, v in slots.items()}
        return tensors | {name: generator.get_state() for name, generator in self.generators.items()}

    @property
    def _named_values(self) -> dict[str, Any]:
        return vars(self.values) if is_dataclass(self.values) else self.values


def _states(optimizer: torch.optim.Optimizer, saved: Checkpoint, name: str) -> States:
    """Return tensors to hold the stored states of the optimizer `name`, sharded like the optimizer's parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states: States = {}
    for key in names_below(saved.tensors, name):
        index, slot = key.split("/")
        parameter, stored = parameters[int(index)], saved.tensors.empty(f"{name}/{key}")
        alike = stored.shape == parameter.shape  # else it is a step count
        states.setdefault(int(index), {})[slot] = torch.zeros_like(parameter) if alike else stored
    return states


def names_below(tensors: Mapping[str, Tensor], name: str) -> list[str]:
    """Return the names of the tensors that begin with `name/`, without that prefix."""
    return [key.removeprefix(f"{name}/") for key in tensors if key.startswith(f"{name}/")]


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
    """Call `step` with each number from `first` to `steps` - 1, and report progress after each call.

    state: saved every `checkpoint_every` steps, except after the last; unless both are given, nothing is saved. enough:
    called after each step with the number of steps done; the loop ends if it returns true.
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
