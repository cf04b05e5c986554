"""The processes of a stage, its ranks. Most stages have one; several ranks share rows and the weights of models.

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
    """The only process of a stage. `trainers.parallel.group.Group` is one of several processes."""

    rank, size = 0, 1
    halvings = 0  # how often an earlier start of these processes ran out of memory

    def in_parts(
        self, rows: Any, size: int, work: Callable[[Any], T], before_each: Callable[[bool], object]
    ) -> list[T]:
        """Apply `work` to parts of at most `size` rows (a tensor or list) per rank; return all results in order.

        before_each: called before each part with whether it is the last one. All ranks must call it.
        """
        results = []
        for start in range(0, len(rows), size):
            before_each(start + size >= len(rows))
            results.append(work(rows[start : start + size]))
        return results

    def backward(self, loss: Any) -> None:
        """Add the gradient of the loss of a part of the rows."""
        loss.backward()

    def share(self, count: int) -> slice:
        """Return the slice of `count` things that belongs to this rank; it may be empty."""
        return slice(0, count)

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks in their order. All ranks must call it."""
        return [value]

    def reduce_gradients(self, model: Any, now: bool) -> None:
        """Set whether the next backward pass through a sharded model sums gradients over ranks."""

    def divided(self, things: Sequence[S], work: Callable[[S], T]) -> list[T]:
        """Apply `work` to each thing on only one rank, and return all results in order. All ranks must call it."""
        results = [work(thing) for thing in things[self.share(len(things))]]
        return [result for of_rank in self.gather(results) for result in of_rank]

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace tensors by their sums over ranks, with the same bits on all. All ranks must call it."""

    def same(self, value: T) -> T:
        """Return the value of the first rank. All ranks must call it."""
        return value

    def build(self, make: Callable[[], T]) -> T:
        """Return the model from `make`, of which only the first of several ranks has the weights until `shard`."""
        return make()

    def shard(self, model: T, *, autocast: bool = False) -> T:
        """Return the model with the first rank's weights, of which each rank stores a part; gradients are summed.

        The model passed in must not be used afterwards. autocast: whether forward passes run under bfloat16 autocast.
        """
        return model

    @contextmanager
    def full_weights(self, model: Any, *, autocast: bool) -> Iterator[Any]:
        """Yield the model or a copy of it with all weights on this rank, which can then call it alone.

        autocast: whether it is called under bfloat16 autocast. The model must not be trained meanwhile.
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
