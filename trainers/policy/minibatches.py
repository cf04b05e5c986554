"""Minibatches of a step's responses, and the means of what is measured on them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

from trainers.objectives.diagnostics import Maximum, Statistic


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
    """Figures of a step: the mean of those of its minibatches, and the largest of maxima.

    Within a minibatch the statistics of micro-batches join, so that no figure depends on their size. What is not
    defined on a minibatch (a reduction of variance while all ratios are 1) is left out of the mean.
    """

    def __init__(self) -> None:
        self._open: dict[str, Statistic] = {}
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._largest: set[str] = set()

    def add(self, statistics: Mapping[str, Statistic]) -> None:
        """Add the statistics of a micro-batch, or of the minibatch as a whole."""
        for name, statistic in statistics.items():
            known = self._open.get(name)
            self._open[name] = statistic if known is None else known.join(statistic)

    def close_minibatch(self, *parts: Mapping[str, Statistic]) -> None:
        """Note that a minibatch is complete, after adding `parts`."""
        for part in parts:
            self.add(part)
        self._largest |= {name for name, statistic in self._open.items() if isinstance(statistic, Maximum)}
        values = {name: statistic.value() for name, statistic in self._open.items()}
        defined = {name: value.double() for name, value in values.items() if value is not None}
        # Together: the host waits for the device once.
        for name, value in zip(defined, torch.stack(list(defined.values())).tolist() if defined else [], strict=True):
            self._figures[name].append(value)
        self._open.clear()

    def means(self) -> dict[str, float]:
        """Return the figures of the step."""
        return {
            name: max(values) if name in self._largest else sum(values) / len(values)
            for name, values in self._figures.items()
        }
