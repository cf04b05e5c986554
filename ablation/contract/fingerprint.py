"""The code that a stage can reach: comments, docstrings and layout do not count, everything else does.

The syntax trees of all project modules that are imported, statically and transitively, from the given ones; installed
packages are left to provenance. The text form of a tree belongs to a minor version of Python, and so does its digest.
"""

import ast
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ablation.contract.errors import ConfigError

PACKAGES = ("trainers", "ablation")
# An entry need not import them, but every stage runs them.
HARNESS = ("ablation.runner.threads", "trainers.harness")
_LENGTH = 16


class Code(NamedTuple):
    """The project's modules that a stage can reach.

    modules: those that were asked for. exclude: config models, whose values are in the key. trees: module name ->
    digest of its syntax tree. text: one digest of the files as they are, which is quick to compare. parts: slot ->
    dotted name, of the variant (`ablation.contract.parts`).
    """

    modules: tuple[str, ...]
    exclude: tuple[str, ...]
    trees: dict[str, str]
    text: str
    parts: dict[str, str]

    @property
    def digest(self) -> str:
        """Return what a key holds of the code."""
        return digest_of(self.trees | {f"parts.{slot}": name for slot, name in self.parts.items()})


def code_of(
    modules: Iterable[str],
    root: Path,
    *,
    parts: Mapping[str, str] | None = None,
    exclude: Iterable[str] = (),
    sources: "Sources | None" = None,
) -> Code:
    """Return the code reachable from `modules`.

    Args:
        modules: dotted names, which must exist under `root`.
        root: the folder that holds the project's packages.
        parts: slot -> dotted name, of a module or of something in one.
        exclude: modules that do not count and are not followed: the config models. Their values are in the key.
        sources: of this root; files that it has read are not read again.

    Raises:
        ConfigError: a module is missing or is not Python.
    """
    modules, exclude, parts = tuple(modules), tuple(sorted(exclude)), dict(parts or {})
    sources = sources or Sources(root)
    of_parts = (name if sources.find(name) else name.rpartition(".")[0] for name in parts.values())
    read = {name: sources.read(name) for name in sorted(_reachable((*modules, *of_parts), sources, exclude))}
    trees = {name: module.tree for name, module in read.items()}
    return Code(modules, exclude, trees, _combined({name: module.text for name, module in read.items()}), parts)


def fingerprint(modules: Iterable[str], root: Path, *, exclude: Iterable[str] = ()) -> str:
    """Return 64 hex digits for the code reachable from `modules`; see `code_of`."""
    return digest_of(code_of(modules, root, exclude=exclude).trees)


def digest_of(trees: Mapping[str, str]) -> str:
    """Return 64 hex digits for modules and the digests of their trees."""
    lines = "".join(f"{name} {tree}\n" for name, tree in sorted(trees.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def changed(code: Code, root: Path) -> list[str]:
    """Return the modules whose code is not what `code` says, or that are reached now or no more.

    Where no byte of the files has changed, no file is parsed: this takes milliseconds.
    """
    if _combined(texts_of(code, root)) == code.text:
        return []
    now = code_of(code.modules, root, parts=code.parts, exclude=code.exclude).trees
    return sorted(name for name in {**code.trees, **now} if code.trees.get(name) != now.get(name))


def texts_of(code: Code, root: Path) -> dict[str, bytes]:
    """Return a digest of each module's file as it is now; those that have gone are left out."""
    found = {name: sha_of(name, root) for name in code.trees}
    return {name: digest for name, digest in found.items() if digest is not None}


def sha_of(name: str, root: Path) -> bytes | None:
    """Return the digest of a module's file as it is now; None where it has gone."""
    path = _find(name, root)
    return None if path is None else _sha(path)


def reachable(modules: Iterable[str], root: Path, *, exclude: Iterable[str] = ()) -> set[str]:
    """Return the dotted names of all project modules reachable from `modules`; see `code_of`."""
    return _reachable(modules, Sources(root), exclude)


def _reachable(modules: Iterable[str], sources: "Sources", exclude: Iterable[str]) -> set[str]:
    skipped = frozenset(exclude)
    found: set[str] = set()
    waiting = []
    for name in modules:
        if sources.find(name) is None:
            raise ConfigError(sources.root, "", name, "there is no such module", "create it, or correct the name")
        waiting.append(name)
    while waiting:
        name = waiting.pop()
        if name in found or name in skipped:
            continue
        if sources.find(name) is None:  # an attribute of a module, or a package that is not the project's
            continue
        found.add(name)
        waiting += sources.read(name).imports
        waiting += [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
    return found


class _Module(NamedTuple):
    tree: str
    text: bytes
    imports: tuple[str, ...]


class Sources:
    """The project's modules as they are when they are first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths: dict[str, Path | None] = {}
        self._modules: dict[str, _Module] = {}

    def find(self, name: str) -> Path | None:
        """Return a module's file; None where the project has no such module."""
        if name not in self._paths:
            self._paths[name] = _find(name, self.root)
        return self._paths[name]

    def read(self, name: str) -> _Module:
        """Return a module that was found: its digests, and the names that it imports."""
        if name not in self._modules:
            path = self.find(name)
            assert path is not None  # whoever asks has found it
            self._modules[name] = _read(name, path)
        return self._modules[name]


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


def _sha(path: Path) -> bytes:
    return hashlib.sha256(read_source(path)).digest()


def _combined(texts: Mapping[str, bytes]) -> str:
    """Return one digest for modules and the digests of their files."""
    joined = b"".join(name.encode() + b" " + texts[name] for name in sorted(texts))
    return hashlib.sha256(joined).hexdigest()[:_LENGTH]


_CACHE: dict[tuple[str, bytes], _Module] = {}


def _read(name: str, path: Path) -> _Module:
    """Return a module's digest and the names that it imports; remembered for as long as its text stays."""
    source = read_source(path)
    key = (f"{name} {path.name}", hashlib.sha256(source).digest())
    if key not in _CACHE:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise ConfigError(path, "", None, f"is not valid Python ({error})", "correct it") from None
        nodes = list(ast.walk(tree))
        imported = tuple(_imports(nodes, name, is_package=path.name == "__init__.py"))
        _CACHE[key] = _Module(tree_digest(tree, nodes), key[1], imported)
    return _CACHE[key]


def tree_digest(tree: ast.Module, nodes: Iterable[ast.AST] | None = None) -> str:
    """Return 16 hex digits for a syntax tree, of which the docstrings are removed. nodes: all of it, where at hand."""
    _drop_docstrings(ast.walk(tree) if nodes is None else nodes)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:_LENGTH]


def _imports(nodes: Iterable[ast.AST], name: str, *, is_package: bool) -> Iterable[str]:
    """Yield every name that may be an imported module."""
    parts = name.split(".")
    for level, module in imported_names(nodes):
        above = parts[: len(parts) - level + is_package] if level else []
        yield ".".join([*above, *([module] if module else [])])


def imported_names(nodes: Iterable[ast.AST]) -> Iterable[tuple[int, str]]:
    """Yield (dots, name) of all that may be imported modules; `from .a import b` gives (1, "a") and (1, "a.b")."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield node.level, base
            yield from ((node.level, f"{base}.{alias.name}".lstrip(".")) for alias in node.names)


def _drop_docstrings(nodes: Iterable[ast.AST]) -> None:
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
