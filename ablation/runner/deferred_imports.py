"""Defers imports that libraries make and a stage on one device hardly ever needs until their first use.

transformers, and huggingface_hub for it, imports torch's compiler, distributed tensors and scipy for a decorator, a
class in an annotation, an `isinstance` or a loss for object detection: a third of the time that a stage's imports take.
After `defer_imports` such an import of theirs gives stand-ins: the real module is imported with the first call,
attribute or subclass. An `isinstance` asks it only where it has been imported; before that nothing can be an instance.

torch itself imports its compiler, and with it 900 modules, to tell it what not to compile. Here the decorators that
mark a function for the compiler leave it as it is: no stage compiles (a test checks that). Any other importer of these
modules gets the real ones.
"""

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import resolve_name
from types import ModuleType
from typing import Any, Union

IMPORTERS = ("transformers", "huggingface_hub")
COMPILER = "torch._dynamo"
DEFERRED = (
    "scipy",
    "sklearn",
    COMPILER,
    "torch.distributed._composable",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    # They make objects of distributed tensors when they are imported.
    "transformers.distributed.expert_parallel",
    "transformers.distributed.tensor_parallel",
)


class StandIn:
    """Something that a deferred module defines."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self.__name__ = self.__qualname__ = name  # as annotations and documentation ask

    def _real(self) -> Any:
        return getattr(import_module(self._module), self._name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the real one."""
        return self._real()(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions (copy, inspect), which look for what may not be there
            raise AttributeError(name)
        return getattr(self._real(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return self._module in sys.modules and isinstance(instance, self._real())

    def __subclasscheck__(self, subclass: type) -> bool:
        return self._module in sys.modules and issubclass(subclass, self._real())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __or__(self, other: Any) -> Any:  # an annotation: `DTensor | None`
        return Union[self._name, other]  # noqa: UP007 (a name and a class have no `|`)

    def __ror__(self, other: Any) -> Any:
        return Union[other, self._name]  # noqa: UP007


class StandInModule(ModuleType):
    """A module whose names are all stand-ins. A name that the real module lacks fails only at its first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(self.__name__, name)


class _Compiler(StandInModule):
    """torch._dynamo until somebody imports it: its marks are left out, everything else is the real one's."""

    MARKS = ("allow_in_graph", "assume_constant_result", "disable", "graph_break")

    def __getattr__(self, name: str) -> Any:
        return self.mark if name in self.MARKS else super().__getattr__(name)

    @staticmethod
    def mark(function: Any = None, *_: Any, **__: Any) -> Any:
        """Return the function, or what decorates one so."""
        return _Compiler.mark if function is None else function


def defer_imports() -> None:
    """Give transformers and torch stand-ins, in this process; call it before transformers is imported."""
    builtins.__import__ = _deferring(builtins.__import__)


def _deferring(ordinary: Callable[..., Any]) -> Callable[..., Any]:
    def importing(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        importer = (globals or {}).get("__name__") or ""
        stand_in = _ASKED.get((importer, name))
        if stand_in is not None and name not in sys.modules:
            return stand_in(name)
        if importer.partition(".")[0] not in IMPORTERS or globals is None:
            return ordinary(name, globals, locals, fromlist, level)
        if fromlist:  # without names (`import a.b`) Python binds the top package itself
            module = resolve_name("." * level + name, globals["__package__"]) if level else name
            if _is_deferred(module) and module not in sys.modules:
                return StandInModule(module)
        imported = ordinary(name, globals, locals, fromlist, level)
        return _without_marks() if name == "torch" and COMPILER not in sys.modules else imported

    return importing


def _is_deferred(name: str) -> bool:
    return any(name == deferred or name.startswith(f"{deferred}.") for deferred in DEFERRED)


def _without_marks(name: str = "torch") -> Any:
    """Return torch with stand-ins for the compiler and for the decorators by which functions speak to it."""
    torch: Any = sys.modules["torch"]
    if not isinstance(torch.__dict__.get("_dynamo"), _Compiler):
        torch._dynamo = _Compiler(COMPILER)  # until its import, which puts the real one here
        for mark in set(_Compiler.MARKS) & set(dir(torch.compiler)):
            _marks.setdefault(mark, getattr(torch.compiler, mark))
            setattr(torch.compiler, mark, _Compiler.mark)
    return torch


_marks: dict[str, Any] = {}  # what torch.compiler has by these names


def restore_compiler() -> None:
    """Give torch its own decorators back, for a library that compiles; call it before that is imported."""
    import_module(COMPILER)
    for mark, original in _marks.items():
        setattr(sys.modules["torch"].compiler, mark, original)


# torch's own imports, at run time: (importer, name) -> what it gets.
_ASKED: dict[tuple[str, str], Callable[[str], Any]] = {
    ("torch._compile", COMPILER): _without_marks,
    ("torch.optim.optimizer", COMPILER): _without_marks,
}
