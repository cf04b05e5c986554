"""Which training prompts a step uses. Both depend on the step alone, so a resumed stage needs no generator's state."""

import math

import torch

from trainers.tasks.interface import bucket


def generator(purpose: str, seed: int, step: int) -> torch.Generator:
    """Return random numbers for one purpose at one step."""
    return torch.Generator().manual_seed(bucket(f"{purpose} {seed} {step}", 2**62))


def number_of_steps(rows: int, batch_size: int, epochs: int, max_steps: int | None) -> int:
    """Return the steps of `epochs` passes, the last batch of a pass filled from the next one, or fewer."""
    steps = math.ceil(epochs * rows / batch_size)
    return steps if max_steps is None else min(steps, max_steps)


def rows_of_step(rows: int, batch_size: int, step: int, *, purpose: str, seed: int) -> list[int]:
    """Return the `batch_size` row numbers of a step: pass after pass over all rows, each in an order of its own."""
    first = step * batch_size
    chosen: list[int] = []
    while len(chosen) < batch_size:
        epoch, place = divmod(first + len(chosen), rows)
        order = torch.randperm(rows, generator=generator(purpose, seed, epoch)).tolist()
        chosen += order[place : place + batch_size - len(chosen)]
    return chosen
