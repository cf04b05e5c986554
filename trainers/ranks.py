"""The processes of a stage. Mostly there is one, and it does all; several share its rows and its models' weights.

Every process of a stage (a rank) runs the same code with the same seeds. They differ in the rows that they put through
a model, each a part of them, and in the part of the weights that each keeps. What they find is put together where a
trainer needs all of it, so that what comes after is the same in all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

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

    def same(self, value: T) -> T:
        """Return the value of the first rank. All must call it."""
        return value

    def shard(self, model: T) -> T:
        """Return the model, of which each rank keeps a part of every weight; gradients are summed over ranks."""
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

    def part(self, tensor: Any, like: Any) -> Any:
        """Return the part of a whole tensor that belongs here, as that of `like`."""
        return tensor

    def save(self, model: Any, folder: Path) -> None:
        """Write a model of transformers, whole, once. All must call it."""
        model.save_pretrained(folder)

    def leave(self) -> None:
        """Wait until all ranks are done."""


ALONE = Ranks()
