"""The parts of a variant: the functions and classes that it uses, by their dotted names.

A study's `parts` names a function that returns, for a configuration and a stage, {slot: dotted name of a function or
class}. The planner hashes the files of these without importing them; a stage imports the ones that its plan names.
"""

from collections.abc import Callable, Mapping
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
