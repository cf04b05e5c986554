"""The code of a stage that is a command: the files that its `code` names, anywhere below the project's folder.

Python counts by its syntax tree, as in `contract.fingerprint`; of all else every byte does. What the interpreter and
the tools leave there (`__pycache__`, hidden files) is no code.
"""

import ast
import glob
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from contract.errors import ConfigError
from contract.fingerprint import tree_digest

_LENGTH = 16


class FileCode(NamedTuple):
    """What `code` names: the patterns, and file -> digest, by the file's path from the project's folder."""

    patterns: tuple[str, ...]
    files: dict[str, str]


def code_files(patterns: Iterable[str], root: Path) -> FileCode:
    """Return the code that the patterns name: a file, a folder (with all below it), or `*`, `?`, `**` and `[...]`.

    Raises:
        ConfigError: nothing matches a pattern, or a file cannot be read; its file is `root`, its value the pattern.
    """
    patterns, files = tuple(patterns), {}
    for pattern in patterns:
        found = _matching(pattern, root)
        if not found:
            problem = f"names no file in {root.resolve()}"
            raise ConfigError(root, "", pattern, problem, "correct it: a file, a folder, or a pattern as `src/**/*.py`")
        for name in found:
            try:
                files[name] = _digest(root / name)
            except OSError as error:
                raise ConfigError(root, "", pattern, f"{name} cannot be read ({error})", "make it readable") from None
    return FileCode(patterns, dict(sorted(files.items())))


def changed_files(code: FileCode, root: Path) -> list[str]:
    """Return the files that are not what `code` says, have gone, or are new."""
    now: dict[str, str] = {}
    for pattern in code.patterns:
        now |= {name: _digest(root / name) for name in _matching(pattern, root)}
    return sorted(name for name in {**code.files, **now} if code.files.get(name) != now.get(name))


def _matching(pattern: str, root: Path) -> list[str]:
    """Return the paths of files, from `root`, that a pattern names, with `/` between their parts."""
    found: set[str] = set()
    for match in glob.glob(pattern, root_dir=root, recursive=True):
        path = Path(match)
        if not (root / path).is_dir():
            found.add(path.as_posix())
        elif not set("*?[") & set(pattern):
            below = ((root / path) / inside for inside in glob.glob("**", root_dir=root / path, recursive=True))
            found |= {(path / file.relative_to(root / path)).as_posix() for file in below if file.is_file()}
    return sorted(name for name in found if "__pycache__" not in name.split("/") and not name.endswith(".pyc"))


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
