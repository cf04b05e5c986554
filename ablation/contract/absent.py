"""Mark of a config field with the value used before the field existed, so that a new field changes no key."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Absent:
    """Mark of a new field of a config model: the value that all stages used before the field existed.

    A stage's key holds all values that the stage reads, so a new field gives every reader a new key. With this mark, as
    in `smoothing: Annotated[float, Absent(0.0)] = Field(default=0.0, ...)`, a field with this value is left out of the
    key, so stages that ran before the field existed do not run again. The mark records past behaviour, not the default:
    do not change it when the default changes. `value` must be JSON: numbers, text, lists, maps, None.
    """

    value: Any
