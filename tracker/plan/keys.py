"""Content addresses: canonical JSON and its digest, and digests of files."""

import hashlib
import json
from pathlib import Path
from typing import Any

from contract.errors import ConfigError

KEY_LENGTH = 16


def canonical(value: Any) -> str:
    """Return one text for equal values: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def key_of(value: Any) -> str:
    """Return the first 16 hex digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:KEY_LENGTH]


_DIGESTS: dict[Path, tuple[tuple[int, int], str]] = {}


def path_digest(path: Path) -> str | None:
    """Return the sha256 of a file, or of the names and digests of the files in a folder; None if there is none."""
    if path.is_dir():
        files = sorted(item for item in path.rglob("*") if item.is_file())
        parts = [[item.relative_to(path).as_posix(), _file_digest(item)] for item in files]
        return hashlib.sha256(canonical(parts).encode()).hexdigest()
    return _file_digest(path) if path.is_file() else None


def _file_digest(path: Path) -> str:
    info, key = path.stat(), path.resolve()
    stamp = (info.st_mtime_ns, info.st_size)
    if key not in _DIGESTS or _DIGESTS[key][0] != stamp:
        try:
            with path.open("rb") as file:
                _DIGESTS[key] = (stamp, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise ConfigError(path, "", None, f"cannot be read ({error})", "make it readable") from error
    return _DIGESTS[key][1]
