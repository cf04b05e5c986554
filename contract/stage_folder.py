"""What a trainer and its runner leave in a stage's folder, and in which state the stage therefore is."""

import fcntl
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DATABASE = "tracker.duckdb"
TERMINAL = ("ok", "failed", "diverged", "blocked")
FAILED = ("failed", "diverged", "blocked", "corrupt")  # states of a stage that ended, and not well
COLLECTED_FILES = ("status.json", "metrics.parquet", "items.parquet", "weights.json", "provenance.json")
# What a status may hold besides its state and key; null is allowed for all.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "reason": str,
    "started": str,
    "ended": str,
    "wall_s": (int, float),
    "attempt": int,
    "device": str,
}


@dataclass(frozen=True)
class StageState:
    """State (ok, failed, diverged, blocked, corrupt, running, missing), its reason, and more of status.json."""

    state: str
    reason: str = ""
    started: str | None = None
    ended: str | None = None
    wall_s: float | None = None
    attempt: int | None = None
    device: str | None = None


@dataclass(frozen=True)
class Progress:
    """A running stage's own account: steps done and in all; began and last wrote at (seconds since the epoch)."""

    done: float
    total: float
    unit: str
    started: float
    updated: float

    def seconds_left(self, now: float) -> float | None:
        """Time left at the rate so far; None before the first step."""
        if self.done <= 0 or self.updated <= self.started:
            return None
        rate = self.done / (self.updated - self.started)
        return max(0.0, (self.total - self.done) / rate - max(0.0, now - self.updated))


def read_state(folder: Path, key: str) -> StageState:
    """Return the state of the stage `key`; an unreadable or foreign status.json makes it corrupt."""
    if link := _foreign_link(folder):
        return StageState("corrupt", link)
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        running = (folder / "progress.json").exists() and is_locked(folder)
        return StageState("running" if running else "missing")
    except (ValueError, OSError) as error:
        return StageState("corrupt", f"status.json: {error}")
    if problem := _problem(status, key):
        return StageState("corrupt", f"status.json: {problem}")
    known = {name: status.get(name) for name in ("started", "ended", "wall_s", "attempt", "device")}
    return StageState(status["state"], str(status.get("reason") or ""), **known)


def _problem(status: Any, key: str) -> str:
    """Return what is wrong with the content of a status.json, or nothing."""
    if not isinstance(status, dict) or status.get("state") not in TERMINAL:
        return "it has no known state"
    if status.get("key") != key:
        return f"it belongs to the stage {status.get('key')}"
    for name, kind in _TYPES.items():
        value = status.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"{name} = {value!r} is of the wrong type"
    return ""


def _foreign_link(folder: Path) -> str:
    """Return what is wrong where a stage's folder, or a file that is collected, is a link; else nothing.

    The folders above may be links, to a larger disk say; a stage's own would let it write over what is not its.
    """
    for path in (folder, *(folder / name for name in COLLECTED_FILES)):
        if path.is_symlink():
            kind = "folder" if path is folder else "file"
            return f"{path.name}: a link to {os.readlink(path)}, where a {kind} belongs"
    return ""


def is_locked(folder: Path) -> bool:
    """Whether a runner holds the stage's lock. The question takes a shared lock for an instant and gives it back."""
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def read_progress(folder: Path) -> Progress | None:
    """Return the progress of a stage, or None where there is none that can be read."""
    try:
        content = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
        started, updated = _seconds(content["started"]), _seconds(content["updated"])
        return Progress(float(content["done"]), float(content["total"]), str(content["unit"]), started, updated)
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it is a courtesy of the trainer, never a reason to fail


def _seconds(moment: float | str) -> float:
    """Seconds since the epoch of a number of seconds or an ISO 8601 time (UTC where it names no zone)."""
    if isinstance(moment, (int, float)):
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
