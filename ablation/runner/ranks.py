"""The processes of a stage. Mostly there is one, which does everything; several share rows and models' weights.

Every process of a stage (a rank) runs the same code with the same seeds. Ranks differ in the rows that they put through
a model and in the part of the weights that they keep. Results are gathered where a trainer needs all of them, so that
everything after that is the same in all ranks.
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
        """Apply `work` to the rows (a tensor or a list), here at most `size` at a time; return all results in order.

        All ranks must call it.

        before_each: called before each part with whether it is the last one.
        """
        results = []
        for start in range(0, len(rows), size):
            before_each(start + size >= len(rows))
            results.append(work(rows[start : start + size]))
        return results

    def backward(self, loss: Any) -> None:
        """Add the gradient of the loss of a part."""
        loss.backward()

    def share(self, count: int) -> slice:
        """Return which of `count` things are this rank's; possibly none."""
        return slice(0, count)

    def gather(self, value: T) -> list[T]:
        """Return what every rank passed, in the order of the ranks. All ranks must call it."""
        return [value]

    def reduce_gradients(self, model: Any, now: bool) -> None:
        """Set whether the next backward pass through a sharded model adds up gradients over ranks."""

    def divided(self, things: Sequence[S], work: Callable[[S], T]) -> list[T]:
        """Apply `work` to each thing in only one rank, and return all results in order. All ranks must call it."""
        results = [work(thing) for thing in things[self.share(len(things))]]
        return [result for of_rank in self.gather(results) for result in of_rank]

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace each tensor with its sum over ranks, the same bits in all. All must call it, with equal shapes."""

    def same(self, value: T) -> T:
        """Return the value of the first rank. All ranks must call it."""
        return value

    def build(self, make: Callable[[], T]) -> T:
        """Return the whole model that `make` makes; with several ranks only the first has its weights until `shard`."""
        return make()

    def shard(self, model: T, *, autocast: bool = False) -> T:
        """Return the model sharded: each rank keeps a part of every weight; gradients are summed over ranks.

        The weights are the first rank's. The model passed in must not be used afterwards. autocast: all its forward
        passes are under bfloat16 autocast.
        """
        return model

    @contextmanager
    def full_weights(self, model: Any, *, autocast: bool) -> Iterator[Any]:
        """Yield the model, or a copy of its present state, with all weights in this rank, which may then call it alone.

        autocast: it will be called under bfloat16 autocast, and not be trained meanwhile.
        """
        yield model

    def full_tensor(self, tensor: Any) -> Any:
        """Return a whole tensor from its shards in the ranks. All ranks must call it."""
        return tensor

    def save(self, model: Any, folder: Path) -> None:
        """Write the whole transformers model once. All ranks must call it."""
        model.save_pretrained(folder)

    def leave(self) -> None:
        """Wait until all ranks are done."""


ALONE = Ranks()
