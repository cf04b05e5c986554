"""The parts of a variant: what `parts(config, stage)` of its study returns by slot, `{"advantage": normalized, ...}`.

The function selects, with ordinary imports, the code that a configuration needs. The planner calls it without importing
any of that code and records the names; a stage imports what the plan names, and can use nothing else.
"""

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PACKAGES = ("trainers", "ablation")  # of the project
Parts = dict[str, Any]  # slot -> function, class or module
PartsOf = Callable[[Any, str], Mapping[str, Any]]  # of a configuration and a stage


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
    """Return slot -> dotted name. Raises TypeError where a part is not something of the project."""
    with naming():
        found = dict(parts(config, stage))
    for slot, part in found.items():
        if not isinstance(part, Named):
            raise TypeError(f"{slot} = {part!r}: import it inside the function, from {' or '.join(PACKAGES)}")
    return {slot: found[slot].path for slot in sorted(found)}


def part(module: str, name: str) -> Any:
    """Return a module's attribute of this name."""
    return getattr(__import__(module, fromlist=[name]), name)


class Loaded(Mapping[str, Any]):
    """The parts that a plan names; each is imported when it is first asked for."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

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
