"""Rows go through a model in micro-batches; where a device's memory does not suffice, in smaller ones.

    micro_batch = stage.micro_batch(config.micro_batch)  # once, so that a smaller size is kept
    losses = micro_batch.run(rows, work, restart=optimizer.zero_grad)

`work(part)` runs the model on a part of the rows, calls `backward` and returns what is to be logged. Where it raises
torch.OutOfMemoryError the size is halved and all rows are done again, so the gradient is that of the same rows. With
several ranks the stage starts again instead (OneRankOutOfMemory).
Two things are the caller's: the loss of a part is divided by the tokens or responses of the whole minibatch, not the
part, and `work` changes nothing but gradients; what it measures is added up from the results, which come from whole
passes.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ablation.runner.ranks import ALONE, Ranks

T = TypeVar("T")


class OutOfMemory(RuntimeError):
    """Raised if a single row does not fit on the device."""


class OneRankOutOfMemory(RuntimeError):
    """Raised if one rank runs out of memory while the others wait: all start again with smaller micro-batches."""


def _nothing(*_: object) -> None:
    pass


class MicroBatch:
    """Number of rows that go through the model at once; it never grows again after memory ran out.

    size: rows; None: all at once. on_halve: called with the new size, after the memory was freed. ranks: the processes
    of the stage, of which each takes its part of the rows; the size is that of each.
    """

    def __init__(
        self, size: int | None = None, on_halve: Callable[[int], None] = _nothing, ranks: Ranks = ALONE
    ) -> None:
        if size is not None and size < 1:
            raise ValueError(f"a micro-batch of {size} rows is not valid; write at least 1, or None for all rows")
        self.size, self._on_halve, self.ranks = size, on_halve, ranks

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss of a micro-batch."""
        self.ranks.backward(loss)

    def run(
        self,
        rows: Tensor | Sequence[Any],
        work: Callable[[Any], T],
        restart: Callable[[], object] = _nothing,
        before_each: Callable[[bool], object] = _nothing,
    ) -> list[T]:
        """Return what `work` returns for each micro-batch of `rows` (a tensor's first dimension, or a list), in order.

        restart: called before the first micro-batch, and again before all rows are done again; zeroes the gradients.
        before_each: called before each micro-batch with whether it is the last one.
        Raises OutOfMemory if one row alone does not fit.
        """

        def attempt(size: int) -> list[T]:
            restart()
            return self.ranks.in_parts(rows, size, work, before_each)

        return self.retry(-(-len(rows) // self.ranks.size), attempt)

    def retry(self, count: int, attempt: Callable[[int], T]) -> T:
        """Return `attempt(size)`, with smaller sizes while it runs out of memory; each begins again.

        count: the most rows that it would take at once. Raises OutOfMemory if one row alone does not fit.
        """
        while True:
            try:
                return attempt(self._now(count))
            except torch.OutOfMemoryError as error:
                reason = str(error).strip().split("\n")[0]
            # Here, not in the handler: the error's traceback would keep the tensors of the failed pass alive.
            self._halve(count, reason)

    def _now(self, count: int) -> int:
        """Return the number of rows that are tried at once."""
        size = self.size or max(count, 1)
        return -(-min(size, max(count, 1)) // 2**self.ranks.halvings) if self.ranks.halvings else size

    def _halve(self, count: int, reason: str) -> None:
        used = min(self._now(count), count)
        if used <= 1:
            remedy = "use a smaller model, shorter sequences or more devices"
            raise OutOfMemory(f"out of memory with one row at a time ({reason}): {remedy}")
        if self.ranks.size > 1:
            raise OneRankOutOfMemory(f"out of memory with {used} rows at a time ({reason})")
        self.size = (used + 1) // 2
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self._on_halve(self.size)
