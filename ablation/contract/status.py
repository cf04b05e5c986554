"""Read and check `status.json`, which records the end of a stage."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.contract.display import one_line
from ablation.contract.process import is_locked
from ablation.contract.reading import read_json, sha256

STATUS = "status.json"
KEPT_STATUS = "status.kept.json"  # Snakemake deletes status.json before it runs a job, and after a job that failed
ENDED = "ended.json"  # output of a command that succeeded, and whether it could be read
TERMINAL = ("ok", "failed", "diverged", "blocked")
FAILED = ("failed", "diverged", "blocked", "corrupt")  # states of a stage that ended, and not well
TO_COME = ("running", "missing")  # states of a stage that has not ended
COLLECTED_FILES = (STATUS, "metrics.parquet", "items.parquet", "weights.json", "provenance.json")
_MAX_BYTES = 1 << 20
_MAX_WORDS = 500
# Fields of a status besides its state. Each may be null; numbers are bounded by what the database takes.
_TEXTS = ("reason", "stage", "key", "started", "ended", "device", "reading")
_NUMBERS: dict[str, tuple[tuple[type, ...], float, float]] = {
    "wall_s": ((int, float), -1e15, 1e15),
    "attempt": ((int,), 0, 2**31 - 1),
    "devices": ((int,), 0, 2**31 - 1),
    "memory_mb": ((int, float), 0, 1e15),
    "device_memory_mb": ((int, float), 0, 1e15),
}
_OF_FILES = {"files": int, "sha256": str}


@dataclass(frozen=True)
class StageState:
    """State of a stage (ok, failed, diverged, blocked, corrupt, running, missing), and other values of its status.json.

    reason: why the stage has this state. reading: for a command that succeeded, the key of the readers that read its
    files or failed to read them. memory_mb, device_memory_mb: peak memory of the largest process, and on one device.
    """

    state: str
    reason: str = ""
    stage: str | None = None
    key: str | None = None
    started: str | None = None
    ended: str | None = None
    wall_s: float | None = None
    attempt: int | None = None
    device: str | None = None
    devices: int | None = None
    memory_mb: float | None = None
    device_memory_mb: float | None = None
    reading: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def unread(self) -> bool:
        """Return whether the stage is a command that succeeded, but whose files could not be read."""
        return self.state == "failed" and self.reading is not None


def read_state(folder: Path, key: str | None = None, name: str = STATUS) -> StageState:
    """Return the state of the stage in a folder, from its status.json or, with `name`, from a copy of that name.

    The stage is corrupt if the status cannot be read or belongs to a stage other than `key`, or if a file that the
    stage left is missing or has another length. Without the file, it is running if its folder is locked, else missing.
    Raises PermissionError if this user may not read the status.
    """
    if replaced(folder):
        return StageState("corrupt", f"{folder.name}: is not a folder, or is a link to one")
    try:
        status = read_json(folder / name, _MAX_BYTES)
    except FileNotFoundError:
        return StageState("running" if is_locked(folder) else "missing")
    except PermissionError:
        raise
    except (ValueError, OSError) as error:
        return StageState("corrupt", f"{name}: {one_line(error, _MAX_WORDS)}")
    if problem := _problem(status, key):
        return StageState("corrupt", f"{name}: {one_line(problem, _MAX_WORDS)}")
    if lost := _lost(folder, status.get("files") or {}):
        return StageState("corrupt", lost)
    fields: dict[str, Any] = {name: status.get(name) for name in (*_TEXTS, *_NUMBERS)}
    fields |= {name: one_line(fields[name], _MAX_WORDS) for name in _TEXTS if fields[name] is not None}
    fields |= {"reason": fields["reason"] or "", "sha256": status.get("sha256") or {}}
    return StageState(status["state"], **fields)


def left_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the sizes (`files`) and digests (`sha256`) of a stage's collected files, for its status."""
    paths = [path for name in COLLECTED_FILES if name != STATUS and (path := folder / name).is_file()]
    return {
        "files": {path.name: path.stat().st_size for path in paths},
        "sha256": {path.name: sha256(path) for path in paths},
    }


def altered(folder: Path, state: StageState, names: Iterable[str] = COLLECTED_FILES) -> str:
    """Return an error about the first file that differs from what the stage left; empty if no file does.

    Whole files are read, because most files that are damaged without a change of length can still be decoded.
    """
    for name in names:
        try:
            if name in state.sha256 and sha256(folder / name) != state.sha256[name]:
                return f"{name}: the content has changed since the stage ended"
        except OSError as error:
            return f"{name}: cannot be read ({error.strerror})"
    return ""


def replaced(folder: Path) -> bool:
    """Return whether the folder of a stage is a link or a file, so that the stage would overwrite other files."""
    return folder.is_symlink() or (folder.exists() and not folder.is_dir())


def _problem(status: Any, key: str | None) -> str:
    """Return an error about the content of a status.json; empty if the content is valid."""
    if not isinstance(status, dict) or status.get("state") not in TERMINAL:
        return "`state` is missing or unknown"
    if key is not None and status.get("key") != key:
        return f"the folder belongs to the stage {status.get('key')}"
    for name in (*_TEXTS, *_NUMBERS, *_OF_FILES):
        value = status.get(name)
        if value is not None and not _can_be(name, value):
            return f"{name} has an invalid value: {value!r}"
    return ""


def _can_be(name: str, value: Any) -> bool:
    if name in _NUMBERS:
        kinds, low, high = _NUMBERS[name]
        return type(value) in kinds and low <= value <= high
    if name in _OF_FILES:
        return isinstance(value, dict) and all(type(item) is _OF_FILES[name] for item in value.values())
    return isinstance(value, str)


def _lost(folder: Path, files: dict[str, int]) -> str:
    """Return an error about the first file that is missing or has another length; empty if all files are there."""
    for name in COLLECTED_FILES:
        if name not in files:
            continue
        try:
            size = (folder / name).stat().st_size
        except OSError:
            return f"{name}: the file has been deleted"
        if size != files[name]:
            return f"{name}: the file has {size} bytes, but the stage wrote {files[name]}"
    return ""
