"""Files that are either whole or absent: written aside, flushed to the disk, renamed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends without an error it takes the place of `path`.

    A reader sees the old content or the new, never a part, also after a power cut. On an error `path` is untouched.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush(path.parent)


def write_text(path: Path | str, text: str) -> None:
    """Replace `path` by `text` (UTF-8)."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Replace `path` by `value` as JSON."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a process that was killed while it wrote; only for the folder's one owner."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
