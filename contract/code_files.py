"""The code of a stage that is a command: the files that its `code` names, anywhere below the project's folder.

Python counts by its syntax tree, as in `contract.fingerprint`; of all else every byte does. What the interpreter and
the tools leave there (`__pycache__`, hidden files) is not code, nor is what is not a regular file.
"""

import ast
import fnmatch
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from contract.errors import ConfigError
from contract.fingerprint import tree_digest

_LENGTH = 16


class FileCode(NamedTuple):
    """What `code` names: the patterns, and file -> digest, by the file's path from the project's folder.

    outside: folders that the jobs write to, so that nothing in them is code even where `code` is the whole project.
    """

    patterns: tuple[str, ...]
    files: dict[str, str]
    outside: tuple[str, ...] = ()


def code_files(patterns: Iterable[str], root: Path, outside: Iterable[Path] = ()) -> FileCode:
    """Return the code that the patterns name: a file, a folder (with all below it), or `*`, `?`, `**` and `[...]`.

    Nothing below the folders `outside` counts, and what can be reached in several ways counts once.

    Raises:
        ConfigError: nothing matches a pattern, or a file cannot be read; its file is `root`, its value the pattern.
    """
    patterns, apart, files = tuple(patterns), tuple(map(str, outside)), {}
    for pattern in patterns:
        found = _matching(pattern, root, apart)
        if not found:
            problem = f"names no file in {root.resolve()}"
            raise ConfigError(root, "", pattern, problem, "correct it: a file, a folder, or a pattern as `src/**/*.py`")
        for name in found:
            try:
                files[name] = _digest(root / name)
            except OSError as error:
                raise ConfigError(root, "", pattern, f"{name} cannot be read ({error})", "make it readable") from None
    return FileCode(patterns, dict(sorted(files.items())), apart)


def changed_files(code: FileCode, root: Path) -> list[str]:
    """Return the files that are not what `code` says, have gone, or are new."""
    now: dict[str, str] = {}
    for pattern in code.patterns:
        now |= {name: _digest(root / name) for name in _matching(pattern, root, code.outside)}
    return sorted(name for name in {**code.files, **now} if code.files.get(name) != now.get(name))


def _matching(pattern: str, root: Path, outside: Iterable[str]) -> list[str]:
    """Return the paths of files, from `root`, that a pattern names, with `/` between their parts."""
    parts = Path(pattern).parts
    plain = next((place for place, part in enumerate(parts) if set("*?[") & set(part)), len(parts))
    start, wild = Path(*parts[:plain]), parts[plain:] or ("**",)
    if plain == len(parts) and (root / start).is_file():
        return [start.as_posix()]
    seen = {found for folder in outside if (found := _inode(folder))}
    below = (file.relative_to(root / start) for file in _files_below(root / start, seen))
    return sorted((start / file).as_posix() for file in below if _fits(file.parts, wild))


def _files_below(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the regular files in a folder and all folders below it, links included; each folder once.

    A pipe would be waited for, and two links to a folder above them lead to 2^40 paths.
    """
    waiting = [folder]
    for start in waiting:  # links after what they may lead to
        for place, folders, files in os.walk(start):
            here = _inode(place)
            if here is None or here in seen:
                folders.clear()
                continue
            seen.add(here)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
            waiting += [path for name in folders if (path := Path(place, name)).is_symlink()]
            for name in files:
                if not name.startswith(".") and not name.endswith(".pyc") and (path := Path(place, name)).is_file():
                    yield path


def _inode(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(parts[place:], pattern[1:]) for place in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


_CACHE: dict[tuple[str, bytes], str] = {}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256")
    if path.suffix != ".py":
        return content.hexdigest()[:_LENGTH]
    key = (path.name, content.digest())
    if key not in _CACHE:
        try:
            _CACHE[key] = tree_digest(ast.parse(path.read_bytes()))
        except (SyntaxError, ValueError):  # a template, say; whoever runs it will be told
            _CACHE[key] = content.hexdigest()[:_LENGTH]
    return _CACHE[key]
