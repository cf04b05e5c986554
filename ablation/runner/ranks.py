"""The processes of a stage. Mostly there is one, and it does all; several share its rows and its models' weights.

Every process of a stage (a rank) runs the same code with the same seeds. They differ in the rows that they put through
a model, each a part of them, and in the part of the weights that each keeps. What they find is put together where a
trainer needs all of it, so that what comes after is the same in all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Ranks:
    """The only process of a stage; `trainers.parallel.group.Group` is one of several."""

    rank, size = 0, 1
    halvings = 0  # how often an earlier start of these processes ran out of memory

    def parts(self, rows: int, size: int) -> list[slice]:
        """Return which rows go through the model here, at most `size` at once; as many parts as every other rank."""
        return [slice(start, start + size) for start in range(0, rows, size)]

    def share(self, count: int) -> slice:
        """Return which of so many things are this rank's; none may be."""
        return slice(0, count)

    def gather(self, found: T) -> list[T]:
        """Return what every rank gave, in order of their numbers. All must call it."""
        return [found]

    def divided(self, things: Sequence[S], work: Callable[[S], T]) -> list[T]:
        """Return what `work` returns for each thing, in order; each is done by one rank. All must call it."""
        found = [work(thing) for thing in things[self.share(len(things))]]
        return [result for of_rank in self.gather(found) for result in of_rank]

    def add_up(self, tensors: Sequence[Any]) -> None:
        """Replace each tensor by its sum over ranks, the same bits in all. All must call it, with equal shapes."""

    def same(self, value: T) -> T:
        """Return the value of the first rank. All must call it."""
        return value

    def build(self, make: Callable[[], T]) -> T:
        """Return the model that `make` makes, whole; of several ranks only the first has its weights, until `shard`."""
        return make()

    def shard(self, model: T) -> T:
        """Return the model, of which each rank keeps a part of every weight; gradients are summed over ranks.

        The weights are the first rank's. What `shard` got is of no use to anyone afterwards.
        """
        return model

    @contextmanager
    def whole_weights(self, model: Any, *, autocast: bool) -> Iterator[Any]:
        """Return the model, or a copy as it is now, with all weights here, so that a rank can call it more often.

        autocast: it will be called under bfloat16 autocast, and not be trained meanwhile.
        """
        yield model

    def whole(self, tensor: Any) -> Any:
        """Return all of a tensor of which this rank has a part. All must call it."""
        return tensor

    def kept(self, tensor: Any) -> Any:
        """Return all of a tensor where files are written, in the first rank. All must call it."""
        return tensor

    def piece(self, tensor: Any) -> tuple[Any, int] | None:
        """Return what this rank writes of a tensor, rows and the number of the first; None: nothing."""
        return tensor, 0

    def part(self, tensors: Mapping[str, Any], name: str, like: Any) -> Any:
        """Return what belongs here of the whole tensor `name`, as of `like`."""
        return tensors[name]

    def save(self, model: Any, folder: Path) -> None:
        """Write a model of transformers, whole, once. All must call it."""
        model.save_pretrained(folder)

    def leave(self) -> None:
        """Wait until all ranks are done."""


ALONE = Ranks()
