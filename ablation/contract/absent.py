"""The value that a missing config field stands for, so that a field added later changes no key."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Absent:
    """Marks a new field of a config model with the value that all stages used before the field existed.

    A stage's key holds all values that the stage reads, so a new field gives every reader a new key. With this mark, as
    in `smoothing: Annotated[float, Absent(0.0)] = Field(default=0.0, ...)`, a field of this value is left out of the
    key, and what ran before the field existed does not run again. The mark records the past behaviour, not the default:
    it stays as it is when the default changes. `value` must be JSON: numbers, text, lists, maps, None.
    """

    value: Any
