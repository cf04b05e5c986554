"""Minibatches of a step's responses, and the means of what is measured on them."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

# Undefined while all importance ratios are 1 (the first minibatch after a rollout), and left out of the mean there.
MAY_BE_UNDEFINED = ("ratio/variance_reduction", "ema/variance_reduction_ratio")


class Passes(Protocol):
    """Settings of an update: passes over the rows, and minibatches per pass."""

    @property
    def epochs(self) -> int: ...  # noqa: D102
    @property
    def minibatches(self) -> int: ...  # noqa: D102


def minibatches(rows: int, update: Passes, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the row numbers of each minibatch, in a new order for every epoch; fewer minibatches where rows are few."""
    for _ in range(update.epochs):
        order = torch.randperm(rows, generator=generator)
        yield from (part for part in order.tensor_split(update.minibatches) if len(part))


class Averages:
    """Means over minibatches and epochs. Within a minibatch, micro-batches count by their weight."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = defaultdict(float)
        self._weights: dict[str, float] = defaultdict(float)
        self._sums: dict[str, float] = defaultdict(float)
        self._closed = 0

    def add(self, values: Mapping[str, Tensor], weight: int) -> None:
        """Add means over `weight` tokens."""
        for name, value in values.items():
            number = float(value)
            if name in MAY_BE_UNDEFINED and math.isnan(number):
                continue
            self._totals[name] += number * weight
            self._weights[name] += weight

    def add_sum(self, name: str, value: Tensor) -> None:
        """Add a part of a loss: the parts of a minibatch add up, and minibatches are averaged."""
        self._sums[name] += float(value.detach())

    def close_minibatch(self) -> None:
        """Note that a minibatch is complete."""
        self._closed += 1

    def means(self) -> dict[str, float]:
        """Return the mean of everything that was added."""
        parts = {name: total / self._weights[name] for name, total in self._totals.items() if self._weights[name]}
        return parts | {name: total / max(self._closed, 1) for name, total in self._sums.items()}
