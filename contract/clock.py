"""Files dated in the future, by a clock that was wrong: Snakemake refuses whatever is made from them."""

import os
import time
from collections.abc import Iterable
from pathlib import Path


def from_the_future(paths: Iterable[Path]) -> list[Path]:
    """Return those of the files that are dated later than now."""
    return [path for path in paths if (written := _written(path)) is not None and written > time.time()]


def date(paths: Iterable[Path], seconds: float | None = None) -> None:
    """Date files as written now, or so many seconds after the epoch."""
    for path in paths:
        os.utime(path, None if seconds is None else (seconds, seconds), follow_symlinks=False)


def _written(path: Path) -> float | None:
    try:
        return path.lstat().st_mtime
    except OSError:  # there is none
        return None
