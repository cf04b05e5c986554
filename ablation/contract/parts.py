"""The parts of a variant: what `parts(config, stage)` of its study returns, a dataclass of functions and classes.

The function selects, with ordinary imports, the code that a configuration needs. The planner calls it without importing
any of that code and records the names; a stage imports what the plan names, and can use nothing else.
"""

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

PACKAGES = ("trainers", "ablation")  # of the project
Parts = dict[str, Any]  # slot -> function, class or module
PartsOf = Callable[[Any, str], Any]  # of a configuration and a stage: a dataclass, `Parts`, or None


class Named:
    """Something of the project that is named without being imported."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> "Named":
        if name.startswith("__"):  # Python's own questions
            raise AttributeError(name)
        return Named(f"{self.path}.{name}")


@contextmanager
def naming() -> Iterator[None]:
    """Let `from trainers.a import b` return names: nothing of the project is imported meanwhile."""
    ordinary = builtins.__import__

    def importing(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level or (top := name.partition(".")[0]) not in PACKAGES:
            return ordinary(name, globals, locals, fromlist, level)
        return Named(name if fromlist else top)

    builtins.__import__ = importing
    try:
        yield
    finally:
        builtins.__import__ = ordinary


def names_of(parts: PartsOf, config: Any, stage: str) -> dict[str, str]:
    """Return slot -> dotted name; the slots of a dataclass or dict within the dataclass are `field.slot`.

    Raises TypeError where a part is not something of the project.
    """
    with naming():
        chosen = parts(config, stage)
    return dict(sorted(_slots(chosen)))


def _slots(chosen: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    slots = vars(chosen) if is_dataclass(chosen) else chosen or {}
    for slot, part in slots.items():
        if isinstance(part, Named):
            yield prefix + slot, part.path
        elif is_dataclass(part) or isinstance(part, dict):
            yield from _slots(part, f"{prefix}{slot}.")
        elif part is not None:
            where = " or ".join(PACKAGES)
            raise TypeError(f"{prefix}{slot} = {part!r}: import it inside the function, from {where}")


def part(module: str, name: str) -> Any:
    """Return a module's attribute of this name."""
    return getattr(__import__(module, fromlist=[name]), name)


class Loaded(Mapping[str, Any]):
    """The parts that a plan names, as attributes; each is imported when it is first asked for.

    A field that the plan does not name is None, and one that held a dataclass or a dict holds its parts.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __getattr__(self, field: str) -> Any:
        if field.startswith("_"):
            raise AttributeError(field)
        if field in self._names:
            return load(self._names[field])
        inner = {
            slot.removeprefix(f"{field}."): name for slot, name in self._names.items() if slot.startswith(f"{field}.")
        }
        return Loaded(inner) if inner else None

    def __getitem__(self, slot: str) -> Any:
        return load(self._names[slot])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load(path: str) -> Any:
    """Return the object of a dotted name: a module, or an attribute of one."""
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
