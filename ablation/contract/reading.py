"""Read files that other programs wrote, with limits on their size and kind."""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

MAX_BYTES = 64 << 20


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises OSError if the file is longer or is not a regular file.
    """
    handle = _open(path)
    try:
        file_stat = os.fstat(handle)
        if file_stat.st_size > limit:
            raise OSError(f"{path.name} is {file_stat.st_size} bytes long, more than the limit of {limit}")
        content = os.read(handle, min(file_stat.st_size + 1, limit))
        while len(content) < limit and (more := os.read(handle, min(limit - len(content), 1 << 20))):
            content += more  # it grew meanwhile, or is longer than one call returns
        return content
    finally:
        os.close(handle)


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Return the text of a file in UTF-8; see `read_bytes`. Raises ValueError if the file is not UTF-8."""
    return read_bytes(path, limit).decode("utf-8")


def read_json(path: Path, limit: int = MAX_BYTES) -> Any:
    """Return the content of a JSON file; see `read_bytes`.

    Raises ValueError if the file is not JSON or is nested too deeply.
    """
    try:
        return json.loads(read_text(path, limit))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def sha256(path: Path) -> str:
    """Return the SHA-256 hex digest of a file. Raises OSError if it cannot be read or is not a regular file."""
    with os.fdopen(_open(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def regular(path: Path) -> Path:
    """Return `path` if it is a regular file.

    Raises OSError for any other path, such as a pipe, at which a library would wait.
    """
    os.close(_open(path))
    return path


def files_at(path: Path) -> dict[str, Path]:
    """Return {name: path} of the regular files at a path: the file itself, or a folder's files by relative path."""
    if path.is_dir():
        return {item.relative_to(path).as_posix(): item for item in sorted(path.rglob("*")) if item.is_file()}
    return {path.name: path} if path.is_file() else {}


def _open(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(f"{path.name} is not a regular file")
