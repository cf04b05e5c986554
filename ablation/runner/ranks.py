"""Ranks, which are the processes of a stage. Usually there is one; several share the rows and weights of a model.

All ranks of a stage run the same code with the same seeds. They differ in the rows that they compute and in the part of
the weights that they store. Results are gathered if a trainer needs all of them, and are then the same on all ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Ranks:
    """The only rank of a stage with one process; `trainers.parallel.group.Group` is its counterpart for several."""

    rank, size = 0, 1
    halvings = 0  # how often an earlier start of these processes ran out of memory

    def in_parts(
        self, rows: Any, size: int, work: Callable[[Any], T], before_each: Callable[[bool], object]
    ) -> list[T]:
        """Apply `work` to parts of the rows (a tensor or list), and return the results of all ranks in order.

        size: largest number of rows of a part. before_each: called before each part of a rank, with whether it is that
        rank's last part. All ranks must call this method.
        """
        results = []
        for start in range(0, len(rows), size):
            before_each(start + size >= len(rows))
            results.append(work(rows[start : start + size]))
        return results

    def backward(self, loss: Any) -> None:
        """Add the gradient of `loss`, the loss of some of the rows, to the parameters' gradients."""
        loss.backward()

    def share(self, count: int) -> slice:
        """Return the slice of a sequence of length `count` that belongs to this rank; it may be empty."""
        return slice(0, count)

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks in the order of ranks. All ranks must call it."""
        return [value]

    def reduce_gradients(self, model: Any, now: bool) -> None:
        """Set whether the next backward pass through a sharded model sums gradients over ranks."""

    def divided(self, things: Sequence[S], work: Callable[[S], T]) -> list[T]:
        """Divide things among ranks, apply `work` to each, and return all results in order. All ranks must call it."""
        results = [work(thing) for thing in things[self.share(len(things))]]
        return [result for of_rank in self.gather(results) for result in of_rank]

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace tensors by their sums over ranks, which are bitwise equal on all ranks. All ranks must call it."""

    def same(self, value: T) -> T:
        """Return the value of the first rank. All ranks must call it."""
        return value

    def build(self, make: Callable[[], T]) -> T:
        """Return the model from `make`; with several ranks, only the first has weights until `shard` is called."""
        return make()

    def shard(self, model: T, *, autocast: bool = False) -> T:
        """Return the model with the first rank's weights divided among the ranks; gradients are summed over ranks.

        The model passed in must not be used afterwards. autocast: whether forward passes run under bfloat16 autocast.
        """
        return model

    @contextmanager
    def full_weights(self, model: Any, *, autocast: bool) -> Iterator[Any]:
        """Yield the model, or a copy, with all weights on this rank, so that this rank can call it without the others.

        autocast: whether the model is called under bfloat16 autocast. Do not train the model inside the `with` block.
        """
        yield model

    def full_tensor(self, tensor: Any) -> Any:
        """Return the unsharded tensor. All ranks must call it."""
        return tensor

    def save(self, model: Any, folder: Path) -> None:
        """Write the unsharded transformers model to `folder`. All ranks must call it."""
        model.save_pretrained(folder)

    def leave(self) -> None:
        """Wait until all ranks are done."""


ALONE = Ranks()
