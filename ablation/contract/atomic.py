"""Write files atomically: into a temporary file that is flushed to disk and renamed, so a file is either old or new.

The module also sets modification times, because Snakemake refuses files that a wrong clock dated in the future.
"""

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ablation.contract.display import printable
from ablation.contract.errors import TrackerError
from ablation.contract.reading import read_bytes

LONG_AGO = 1  # second after the epoch; 0 would count as no time at all


class WriteError(TrackerError, OSError):
    """Raised if a file cannot be written; an OSError, so that a stage can tell a full disk from an error of its own."""

    def __init__(self, text: str, error: OSError) -> None:
        super().__init__(text)
        self.text, self.errno, self.strerror = text, error.errno, error.strerror

    def __str__(self) -> str:
        return printable(self.text)


@contextmanager
def replacing(path: Path | str, *, sync: bool = True) -> Iterator[Path]:
    """Yield a path next to `path` with the same suffix; if the block ends without an error, that file replaces `path`.

    A reader finds the old content or the new one, never a part; with `sync`, this holds even after a power cut.

    Raises WriteError if the disk is full or the folder cannot be written, and TrackerError if `path` has no name or is
    a device, such as /dev/null, which root would replace with a file.
    """
    path = Path(path)
    if not path.name or path.is_char_device() or path.is_block_device():
        raise TrackerError(f"{path}: is not a regular file; name another path")
    aside = path.with_name(f".{os.getpid()}.tmp.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)  # of a process that had this number and was killed
        yield aside
        if sync:
            _flush(aside)
        aside.replace(path)
        if sync:
            _flush(path.parent)
    except WriteError:
        raise
    except OSError as error:
        kept = "; the previous version is unchanged" if path.exists() else ""
        reason = error.strerror or " ".join(str(error).split())
        text = f"{path}: cannot be written ({reason}){kept}; free disk space, or make the folder writable"
        raise WriteError(text, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_text(path: Path | str, text: str, *, sync: bool = True) -> None:
    """Write `text` to `path` atomically, in UTF-8 and with unchanged line endings; `replacing` describes `sync`."""
    with replacing(path, sync=sync) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` to `path` as JSON, atomically."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def update_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write `text` to `path` atomically, unless the file already has exactly this content."""
    with suppress(OSError):
        if read_bytes(path) == text.encode():
            return
    write_text(path, text, sync=sync)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files that killed processes left in a folder. Only the folder's single writer may do so."""
    for leftover in folder.glob(".*.tmp.*"):
        leftover.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def from_the_future(paths: Iterable[Path]) -> list[Path]:
    """Return the existing files whose modification times lie in the future."""
    files = []
    for path in paths:
        with suppress(OSError):  # there is none
            if path.lstat().st_mtime > time.time():
                files.append(path)
    return files


def date(paths: Iterable[Path], seconds: float | None = None) -> None:
    """Set modification times to now, or to `seconds` after the epoch; files of another user are replaced by copies."""
    for path in paths:
        times = None if seconds is None else (seconds, seconds)
        try:
            os.utime(path, times, follow_symlinks=False)
        except PermissionError:  # only the owner may; whoever may write the folder may replace the file
            with replacing(path, sync=False) as aside:
                shutil.copyfile(path, aside)
            os.utime(path, times)
