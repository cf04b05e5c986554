"""What a study's config module declares for the planner: the parts of a variant, and former values of new fields.

`parts(config, stage)` returns slot -> dotted name of a function or class. Planner and trainer read the same names. The
planner imports none of them, and hashes their files; a stage imports those that its plan names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

PACKAGES = ("trainers", "ablation")  # of the project
Parts = dict[str, str]  # slot -> dotted name
PartsOf = Callable[[Any, str], Parts]  # of a configuration and the name of a stage


def load(names: Mapping[str, str]) -> dict[str, Any]:
    """Import functions and classes by their dotted names, {slot: name}, and return {slot: function or class}."""
    found = {}
    for slot, path in names.items():
        module, _, name = path.rpartition(".")
        found[slot] = getattr(import_module(module), name)
    return found


@dataclass(frozen=True)
class Absent:
    """Marks a new field of a config model with the value that all stages used before the field existed.

    A stage's key holds all values that the stage reads, so a new field gives every reader a new key. With this mark, as
    in `smoothing: Annotated[float, Absent(0.0)] = Field(default=0.0, ...)`, a field of this value is left out of the
    key, and what ran before the field existed does not run again. The mark records the past behaviour, not the default:
    it stays as it is when the default changes. `value` must be JSON: numbers, text, lists, maps, None.
    """

    value: Any
