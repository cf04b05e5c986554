"""Which weights a rollout used: a model carries the number of optimiser steps that its weights have seen.

The number is a buffer of the model, so whoever holds a copy of the weights (a sampler of its own, a reference) holds
the number of the moment of copying, and a difference to the trained model's number means stale weights.
"""

import torch
from torch import nn

_BUFFER = "optimizer_steps"


def count_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Let every step of `optimizer` add 1 to the number that `model` carries, 0 to begin with."""
    model.register_buffer(_BUFFER, torch.tensor(0), persistent=False)  # belongs to a run, not to a saved model

    def add_one(*_: object) -> None:
        model.get_buffer(_BUFFER).add_(1)

    optimizer.register_step_post_hook(add_one)


def set_steps(model: nn.Module, taken: int) -> None:
    """Set the number, for weights that come from a checkpoint."""
    model.get_buffer(_BUFFER).fill_(taken)


def steps_taken(model: nn.Module) -> int:
    """Return the number of optimiser steps that the weights of `model` have seen."""
    return int(model.get_buffer(_BUFFER))
