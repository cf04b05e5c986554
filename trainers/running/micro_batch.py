"""Micro-batches: parts of the rows that pass through a model at once, made smaller if a device runs out of memory.

    micro_batch = stage.micro_batch(config.micro_batch)  # create it once, so that a reduced size is kept
    losses = micro_batch.run(rows, work, restart=optimizer.zero_grad)

`work(part)` runs the model on a part of the rows, calls `backward` and returns what is to be logged. If it raises
torch.OutOfMemoryError, the size is halved, `restart` is called and all rows are repeated, so that the gradient covers
each row once. With several ranks the stage starts again instead (OneRankOutOfMemory).

The caller must divide the loss of a part by the tokens or responses of the whole minibatch, and `work` must not change
anything but gradients, because it may be repeated.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ablation.runner.ranks import ALONE, Ranks

T = TypeVar("T")


class OutOfMemory(RuntimeError):
    """Raised if the device runs out of memory with a single row."""


class OneRankOutOfMemory(RuntimeError):
    """Raised if one of several ranks runs out of memory; all ranks then start again with smaller micro-batches."""


def _nothing(*_: object) -> None:
    pass


class MicroBatch:
    """Number of rows that pass through the model at once; if memory runs out, it is halved for the rest of the stage.

    size: rows per rank; None: all. on_halve: called with the new size after each halving. ranks: the processes of the
    stage, each of which takes a part of the rows.
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
        """Return the results of `work` for all micro-batches of `rows` (a list, or a tensor with rows in dimension 0).

        restart: called before the first micro-batch, and before the rows are repeated, to zero gradients.
        before_each: called before each micro-batch with whether it is the last one. Raises OutOfMemory if the device
        runs out of memory with a single row.
        """

        def attempt(size: int) -> list[T]:
            restart()
            return self.ranks.in_parts(rows, size, work, before_each)

        return self.retry(-(-len(rows) // self.ranks.size), attempt)

    def retry(self, count: int, attempt: Callable[[int], T]) -> T:
        """Return `attempt(size)`, repeated with half the size whenever the device runs out of memory.

        count: number of rows. Raises OutOfMemory if the device runs out of memory with a single row.
        """
        while True:
            try:
                return attempt(self._now(count))
            except torch.OutOfMemoryError as error:
                reason = str(error).strip().split("\n")[0]
            # Not in the handler, where the error's traceback would keep the tensors of the failed pass alive.
            self._halve(count, reason)

    def _now(self, count: int) -> int:
        size = self.size or max(count, 1)
        return -(-min(size, max(count, 1)) // 2**self.ranks.halvings) if self.ranks.halvings else size

    def _halve(self, count: int, reason: str) -> None:
        used = min(self._now(count), count)
        if used <= 1:
            remedy = "use a smaller model, shorter sequences or more devices"
            raise OutOfMemory(f"out of memory with one row at a time ({reason}); {remedy}")
        if self.ranks.size > 1:
            raise OneRankOutOfMemory(f"out of memory with {used} rows at a time ({reason})")
        self.size = (used + 1) // 2
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self._on_halve(self.size)
