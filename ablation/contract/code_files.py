"""The code of a stage that is a command: the files that its `code` names, anywhere below the project's folder.

The modules behind `-m` count as well, and what they and the Python files among the code import from the project.

Python files count by syntax tree, as in `ablation.contract.definitions`; other files byte by byte. Caches
(`__pycache__`), hidden files and anything that is not a regular file do not count.
"""

import ast
import fnmatch
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ablation.contract.command import mentions
from ablation.contract.definitions import LENGTH, imported_names, tree_digest
from ablation.contract.errors import ConfigError


class FileCode(NamedTuple):
    """The files that `code` names: the patterns, and file -> digest, by the file's path from the project's folder.

    outside: folders that the jobs write to, so that nothing in them is code even where `code` is the whole project.
    words: of the command.
    """

    patterns: tuple[str, ...]
    files: dict[str, str]
    outside: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def code_files(
    patterns: Iterable[str], root: Path, outside: Iterable[Path] = (), words: Iterable[str] = ()
) -> FileCode:
    """Return the code that the patterns name: a file, a folder (with all below it), or `*`, `?`, `**` and `[...]`.

    Nothing below the folders `outside` counts, and what can be reached in several ways counts once.

    Raises ConfigError where nothing matches a pattern, or a file cannot be read; its file is `root`, its value the
    pattern.
    """
    code = FileCode(tuple(patterns), {}, tuple(map(str, outside)), tuple(words))
    for pattern in code.patterns:
        if not _matching(pattern, root, code.outside):
            problem = f"names no file in {root.resolve()}"
            raise ConfigError(root, "", pattern, problem, "correct it: a file, a folder or a pattern (`src/**/*.py`)")
    try:
        return code._replace(files=_files(code, root))
    except OSError as error:
        problem = f"{error.filename} cannot be read ({error.strerror})"
        raise ConfigError(root, "", code.patterns, problem, "make it readable") from None


def changed_files(code: FileCode, root: Path) -> list[str]:
    """Return the files that are not what `code` says, have gone, or are new."""
    now = _files(code, root)
    return sorted(name for name in {**code.files, **now} if code.files.get(name) != now.get(name))


def named_files(words: Iterable[str], root: Path) -> list[str]:
    """Return the project's files that a command names, except files of a Python environment."""
    names = filter(None, (_within(word, root) for word in mentions(tuple(words)).files))
    return [name for name in dict.fromkeys(names) if os.path.isfile(root / name) and not is_installed(root, name)]


def is_installed(root: Path, name: str) -> bool:
    """Tell whether a file of the project belongs to a Python environment."""
    return any((root / folder / "pyvenv.cfg").exists() for folder in Path(name).parents)


def _within(path: str, root: Path) -> str:
    """Return the path from `root` of what lies below it, or nothing."""
    name = os.path.relpath(path, root.absolute()) if os.path.isabs(path) else os.path.normpath(path)
    return "" if name.split(os.sep)[0] == os.pardir else Path(name).as_posix()


def _files(code: FileCode, root: Path) -> dict[str, str]:
    """Return file -> digest of what the patterns name and of what is imported. Raises OSError."""
    said = mentions(code.words)
    scripts = [os.path.dirname(name) for name in named_files(code.words, root) if name.endswith(".py")]
    first = [*scripts, *([""] if said.modules else [])]
    folders = [*first, *(_within(folder, root) for folder in said.folders), "", "src"]
    waiting = [name for pattern in code.patterns for name in _matching(pattern, root, code.outside)]
    waiting += [name for module in said.modules for name in _modules(module, folders, root)]
    digests: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in digests:
            continue
        digests[name], imports = _read(root / name)
        here = os.path.dirname(name)
        own = [] if (root / here / "__init__.py").exists() else [here]  # where it is the program, or next to it
        for level, module in imports:
            above = os.path.join(here, *[".."] * (level - 1))
            waiting += _modules(module or "__init__", [above] if level else [*own, *folders], root)
    return dict(sorted(digests.items()))


def _modules(name: str, folders: Iterable[str], root: Path) -> list[str]:
    """Return the files of a module and the packages above it, in the first of the folders that has any."""
    parts = name.split(".")
    for folder in dict.fromkeys(folders) if "/" not in name else ():
        stems = [os.path.normpath(os.path.join(folder, *parts[:depth])) for depth in range(1, len(parts) + 1)]
        files = [file for stem in stems for file in (f"{stem}/__init__.py", f"{stem}.py")]
        if existing := [file for file in files if not file.startswith("../") and os.path.isfile(root / file)]:
            return existing
    return []


def _matching(pattern: str, root: Path, outside: Iterable[str]) -> list[str]:
    """Return the paths of files, from `root`, that a pattern names, with `/` between their parts."""
    parts = Path(pattern).parts
    plain = next((place for place, part in enumerate(parts) if set("*?[") & set(part)), len(parts))
    start, wild = Path(*parts[:plain]), parts[plain:] or ("**",)
    if plain == len(parts) and (root / start).is_file():
        return [start.as_posix()]
    visited = {inode for folder in outside if (inode := _inode(folder))}
    below = (file.relative_to(root / start) for file in _files_below(root / start, visited))
    return sorted((start / file).as_posix() for file in below if _fits(file.parts, wild))


def _files_below(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the regular files in a folder and all folders below it, links included; each folder once.

    A pipe would be waited for, and two links to a folder above them lead to 2^40 paths.
    """
    for place, folders, files in os.walk(folder, followlinks=True):
        here = _inode(place)
        if here is None or here in visited:
            folders.clear()
            continue
        visited.add(here)
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        folders.sort(key=lambda name: (os.path.islink(os.path.join(place, name)), name))  # links after real folders
        for name in files:
            if not name.startswith(".") and not name.endswith(".pyc") and (path := Path(place, name)).is_file():
                yield path


def _inode(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(parts[place:], pattern[1:]) for place in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


_CACHE: dict[tuple[str, bytes], tuple[str, tuple[tuple[int, str], ...]]] = {}


def _read(path: Path) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Return the digest of a file, and the names that it imports where it is Python."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256")
    if path.suffix != ".py":
        return content.hexdigest()[:LENGTH], ()
    key = (path.name, content.digest())
    if key not in _CACHE:
        try:
            tree = ast.parse(path.read_bytes())
            _CACHE[key] = tree_digest(tree), tuple(imported_names(ast.walk(tree)))
        except (SyntaxError, ValueError):  # a template, say; running it will report the error
            _CACHE[key] = content.hexdigest()[:LENGTH], ()
    return _CACHE[key]
