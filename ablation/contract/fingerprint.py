"""The code that a stage can reach, without comments, docstrings, layout and unused definitions.

What counts are the definitions that a stage names (functions, classes, values at the top level of a file) and all that
these refer to by name, at any depth and across files, up to installed packages, which are left to provenance. Of a file
that is imported on the way, the statements that do something count as well. A module that is used other than by its
attributes counts whole, and where code looks definitions up without naming them (`import_module`, `globals()`), every
file counts whole that is imported.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ablation.contract.definitions import LENGTH, File, Import, digest_of, file_of
from ablation.contract.errors import ConfigError
from ablation.contract.parts import PACKAGES

# An entry need not name them, but every stage runs them.
HARNESS = (
    "ablation.runner.lifetime.prepare_process",
    "ablation.runner.stage.load_config",
    "ablation.contract.health.parse_rules",
    "trainers.harness.fix_randomness",
    "trainers.harness.Stage",
)
# Other names of an entry module, by which the runner finds out how to run it.
_OF_ENTRIES = ("RANKS",)
_IMPORTED, _ALL = -1, -2  # instead of a statement: the module as it is imported, and all that it defines
_Node = tuple[str, int]  # module, statement of its file


class Code(NamedTuple):
    """The project's code that a stage can reach.

    names: what was asked for. exclude: config models, whose values are in the key. modules: those that are imported ->
    digest of what counts of them. text: one digest of the files as they are, which is quick to compare. parts: slot ->
    dotted name, of the variant (`ablation.contract.parts`).
    """

    names: tuple[str, ...]
    exclude: tuple[str, ...]
    modules: dict[str, str]
    text: str
    parts: dict[str, str]

    @property
    def digest(self) -> str:
        """Return the part of a key that covers the code."""
        return combined(self.modules | {f"parts.{slot}": name for slot, name in self.parts.items()})


def of_entry(module: str) -> tuple[str, ...]:
    """Return the names whose code a stage runs with this entry module."""
    return (f"{module}:run", *HARNESS)


def code_of(
    names: Iterable[str],
    root: Path,
    *,
    parts: Mapping[str, str] | None = None,
    exclude: Iterable[str] = (),
    sources: "Sources | None" = None,
) -> Code:
    """Return the code reachable from `names`.

    Args:
        names: `module` for all of it, `module.definition`, or `module:function` for an entry.
        root: the folder that holds the project's packages.
        parts: slot -> dotted name, of a module or of something in one.
        exclude: modules that do not count and are not followed: the config models. Their values are in the key.
        sources: of this root; files that it has read are not read again.

    Raises ConfigError where something is missing or is not Python.
    """
    names, exclude, parts = tuple(names), tuple(sorted(exclude)), dict(parts or {})
    sources = sources or Sources(root)
    nodes = sources.reached((*names, *parts.values()), frozenset(exclude))
    numbers: dict[str, list[int]] = {}
    for module, number in nodes:
        numbers.setdefault(module, []).append(number)
    modules = {module: sources.digest(module, tuple(sorted(numbers[module]))) for module in sorted(numbers)}
    return Code(names, exclude, modules, _joined({name: sources.read(name).text for name in modules}), parts)


def combined(digests: Mapping[str, str]) -> str:
    """Return 64 hex digits for names and their digests."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def changed(code: Code, root: Path) -> list[str]:
    """Return the modules whose code is not what `code` says, or that are newly or no longer reached.

    Where no byte of the files has changed, no file is parsed: this takes milliseconds.
    """
    if _joined(texts_of(code, root)) == code.text:
        return []
    now = code_of(code.names, root, parts=code.parts, exclude=code.exclude).modules
    return sorted(name for name in {**code.modules, **now} if code.modules.get(name) != now.get(name))


def texts_of(code: Code, root: Path) -> dict[str, bytes]:
    """Return a digest of each module's file as it is now; deleted files are left out."""
    digests = {name: sha_of(name, root) for name in code.modules}
    return {name: digest for name, digest in digests.items() if digest is not None}


def sha_of(name: str, root: Path) -> bytes | None:
    """Return the digest of a module's file as it is now; None if it was deleted."""
    path = _find(name, root)
    return None if path is None else hashlib.sha256(read_source(path)).digest()


class Sources:
    """The project's modules as they are when first asked for, and the references between their definitions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths: dict[str, Path | None] = {}
        self._files: dict[str, File] = {}
        self._references: dict[_Node, tuple[_Node, ...]] = {}
        self._reached: dict[tuple[_Node, frozenset[str]], frozenset[_Node]] = {}
        self._digests: dict[tuple[str, tuple[int, ...]], str] = {}

    def find(self, name: str) -> Path | None:
        """Return a module's file; None where the project has no such module."""
        if name not in self._paths:
            self._paths[name] = _find(name, self.root)
        return self._paths[name]

    def read(self, name: str) -> File:
        """Return what a module that was found defines."""
        if name not in self._files:
            path = self.find(name)
            assert path is not None  # whoever asks has found it
            self._files[name] = file_of(name, path, read_source(path))
        return self._files[name]

    def reached(self, names: Iterable[str], exclude: frozenset[str]) -> frozenset[_Node]:
        """Return all that these names reach, except in the modules `exclude`. Raises ConfigError for a missing one."""
        starts = [node for name in names for node in self._named(name)]
        nodes = frozenset[_Node]().union(*(self._reached_from(start, exclude) for start in starts))
        if not any(map(self._searches, nodes)):
            return nodes
        while more := {(module, _ALL) for module, _ in nodes} - nodes:  # whatever is imported can be found
            nodes = nodes.union(*(self._reached_from(node, exclude) for node in more))
        return nodes

    def digest(self, module: str, numbers: tuple[int, ...]) -> str:
        """Return 16 hex digits for these statements of a module, in the order in which they stand there."""
        if (module, numbers) not in self._digests:
            statements = self.read(module).statements
            self._digests[module, numbers] = digest_of(statements[number].digest for number in numbers if number >= 0)
        return self._digests[module, numbers]

    def _named(self, name: str) -> Iterator[_Node]:
        """Yield the definitions that a requested name stands for."""
        module, colon, function = name.partition(":")
        if not colon and self.find(name) is None:
            module, _, function = name.rpartition(".")
        if self.find(module) is None:
            raise ConfigError(
                self.root, "", module or name, "there is no such module", "create it, or correct the name"
            )
        if not function:
            yield module, _ALL
            return
        bindings = self.read(module).bindings
        if function not in bindings:
            problem = f"the module has no {function}"
            raise ConfigError(self.root, "", module, problem, f"define {function}, or correct the name")
        for each in (function, *(_OF_ENTRIES if colon else ())):
            if each in bindings:
                yield from self._meant(module, each, ())

    def _reached_from(self, start: _Node, exclude: frozenset[str]) -> frozenset[_Node]:
        if (start, exclude) not in self._reached:
            reached: set[_Node] = set()
            waiting = [start]
            while waiting:
                node = waiting.pop()
                if node not in reached and node[0] not in exclude:
                    reached.add(node)
                    if node not in self._references:
                        self._references[node] = tuple(dict.fromkeys(self._referred(*node)))
                    waiting += self._references[node]
            self._reached[start, exclude] = frozenset(reached)
        return self._reached[start, exclude]

    def _referred(self, module: str, number: int) -> Iterator[_Node]:
        file = self.read(module)
        if number == _IMPORTED:
            packages = (module.rsplit(".", depth)[0] for depth in range(1, module.count(".") + 1))
            yield from ((package, _IMPORTED) for package in packages if self.find(package) is not None)
            for place, statement in enumerate(file.statements):
                for each in () if statement.deferred else statement.imports:
                    yield from self._executed(each)
                if statement.acts:
                    yield module, place
            return
        yield module, _IMPORTED
        if number == _ALL:
            for defined in file.bindings:
                yield from self._meant(module, defined, ())
            return
        statement = file.statements[number]
        for each in statement.imports:
            yield from self._executed(each)
        for dotted in statement.names:
            head, *rest = dotted.split(".")
            for each in statement.imports:
                if each.bound == head:
                    yield from self._meant(each.module, each.name, rest)
            if head in file.bindings:
                yield from self._meant(module, head, rest)

    def _executed(self, statement: Import) -> Iterator[_Node]:
        for name in (statement.module, f"{statement.module}.{statement.name}"):
            if self.find(name) is not None:
                yield name, _IMPORTED
        if statement.name == "*" and self.find(statement.module) is not None:
            yield statement.module, _ALL

    def _meant(self, module: str, name: str, rest: Sequence[str]) -> Iterator[_Node]:
        """Yield the definitions behind a name in a module, followed by these attributes; without a name, the module."""
        waiting, visited = [(module, name, tuple(rest))], set()
        while waiting:
            module, name, rest = step = waiting.pop()
            if step in visited or self.find(module) is None:
                continue
            visited.add(step)
            if not name:
                if rest:
                    waiting.append((module, rest[0], rest[1:]))
                else:
                    yield module, _ALL
                continue
            file = self.read(module)
            bound = file.bindings.get(name, ())
            for number in bound:
                yield module, number
                imports = file.statements[number].imports
                waiting += [(each.module, each.name, rest) for each in imports if each.bound == name]
            if self.find(f"{module}.{name}") is not None:
                waiting.append((f"{module}.{name}", "", rest))
            elif not bound:  # found by the module's own `__getattr__`, or in what it imports with a star
                yield module, _ALL

    def _searches(self, node: _Node) -> bool:
        """Whether a statement may reach others that it does not name. The plan names what the runner looks up."""
        module, number = node
        ours = module.partition(".")[0] == "ablation"
        return not ours and number >= 0 and self.read(module).statements[number].searches


def _find(name: str, root: Path) -> Path | None:
    if name.split(".", maxsplit=1)[0] not in PACKAGES:
        return None
    stem = root.joinpath(*name.split("."))
    module, package = stem.with_name(stem.name + ".py"), stem / "__init__.py"
    # A package wins over a module of the same name, as in Python's own import system.
    return package if package.is_file() else module if module.is_file() else None


def read_source(path: Path) -> bytes:
    """Return the content of a file of code."""
    return path.read_bytes()


def _joined(texts: Mapping[str, bytes]) -> str:
    joined = b"".join(name.encode() + b" " + texts[name] for name in sorted(texts))
    return hashlib.sha256(joined).hexdigest()[:LENGTH]
