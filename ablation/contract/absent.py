"""What it meant that a configuration had no such field, for fields that are added later."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Absent:
    """Marks a new field of a config model: until there was such a field, everything ran as with this value.

    A stage's key holds all values that the stage reads, so a new field gives every reader a new key. With the mark, as
    in `smoothing: Annotated[float, Absent(0.0)] = Field(default=0.0, ...)`, a field of this value is left out of the
    key, and what ran before the field existed runs no more. The mark says how it was, not what the default is: it
    stays as it is when the default changes. `value` is what JSON has: numbers, text, lists, maps, None.
    """

    value: Any
