"""A digest of the code that a stage can reach: comments, docstrings and layout do not count, everything else does.

The syntax trees of all project modules that are imported, statically and transitively, from the given ones; installed
packages are left to provenance. The text form of a tree belongs to a minor version of Python, and so does the digest.
"""

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

from contract.errors import ConfigError

PACKAGES = ("trainers", "contract")


def fingerprint(modules: Iterable[str], root: Path, *, exclude: Iterable[str] = ()) -> str:
    """Return 64 hex digits for the code reachable from `modules`.

    Args:
        modules: dotted names, which must exist under `root`.
        root: the folder that holds the project's packages.
        exclude: modules that do not count and are not followed. A study's config model is one: its values are in the
            key already, and a new key with a default must rerun nothing.

    Raises:
        ConfigError: a module is missing or is not Python.
    """
    digest = hashlib.sha256()
    for name in sorted(reachable(modules, root, exclude=exclude)):
        path = _find(name, root)
        assert path is not None  # reachable() found it
        digest.update(f"{name} {_read(name, path)[0]}\n".encode())
    return digest.hexdigest()


def reachable(modules: Iterable[str], root: Path, *, exclude: Iterable[str] = ()) -> set[str]:
    """Return the dotted names of all project modules reachable from `modules`; see `fingerprint`."""
    skipped = frozenset(exclude)
    found: set[str] = set()
    waiting = []
    for name in modules:
        if _find(name, root) is None:
            raise ConfigError(root, "", name, "there is no such module", "create it, or correct the name")
        waiting.append(name)
    while waiting:
        name = waiting.pop()
        if name in found or name in skipped:
            continue
        path = _find(name, root)
        if path is None:  # an attribute of a module, or a package that is not the project's
            continue
        found.add(name)
        waiting += _read(name, path)[1]
        waiting += [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
    return found


def _find(name: str, root: Path) -> Path | None:
    if name.split(".", maxsplit=1)[0] not in PACKAGES:
        return None
    stem = root.joinpath(*name.split("."))
    module, package = stem.with_name(stem.name + ".py"), stem / "__init__.py"
    # A package wins over a module of the same name, as in Python's own import system.
    return package if package.is_file() else module if module.is_file() else None


_CACHE: dict[Path, tuple[tuple[int, int], tuple[str, tuple[str, ...]]]] = {}


def _read(name: str, path: Path) -> tuple[str, tuple[str, ...]]:
    """Return a module's own digest and the names that it imports; remembered until the file changes."""
    info = path.stat()
    stamp = (info.st_mtime_ns, info.st_size)
    key = path.resolve()
    if key in _CACHE and _CACHE[key][0] == stamp:
        return _CACHE[key][1]
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise ConfigError(path, "", None, f"is not valid Python ({error})", "correct it") from None
    imported = tuple(_imports(tree, name, is_package=path.name == "__init__.py"))
    _drop_docstrings(tree)
    result = (hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported)
    _CACHE[key] = (stamp, result)
    return result


def _imports(tree: ast.Module, name: str, *, is_package: bool) -> Iterable[str]:
    """Yield every name that may be an imported module; `from a import b` gives both `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                parents = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
