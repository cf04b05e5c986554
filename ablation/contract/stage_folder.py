"""Read the progress that a running stage reports. This module also holds the database's name and version."""

from dataclasses import dataclass
from pathlib import Path

from ablation.contract.display import one_line
from ablation.contract.reading import read_json

DATABASE = "tracker.duckdb"
SCHEMA_VERSION = "11"  # of its tables (`ablation.store.database.SCHEMA`)
CHECKS = "check"  # below the results: what `ablation check` ran
_LARGEST = 1e15  # digits of a number that a person reads


@dataclass(frozen=True)
class Progress:
    """Progress of a running stage: steps done, all steps, and the times of start and last update (epoch seconds)."""

    done: float
    total: float
    unit: str
    started: float
    updated: float

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds left at the rate so far; None before the first step."""
        if self.done <= 0 or self.updated <= self.started:
            return None
        rate = self.done / (self.updated - self.started)
        return max(0.0, (self.total - self.done) / rate - max(0.0, now - self.updated))


def read_progress(folder: Path) -> Progress | None:
    """Return the progress of a stage; None if the record is missing, unreadable or not plausible."""
    try:
        content = read_json(folder / "progress.json")
        done, total, *times = (float(content[name]) for name in ("done", "total", "started", "updated"))
        if not all(abs(number) < _LARGEST for number in (done, total, *times)):
            return None
        return Progress(done, total, one_line(content["unit"], 40), *times)
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError):
        return None  # it is a courtesy of the trainer, never a reason to fail


def read_attempt(folder: Path, unknown: int = 1) -> int:
    """Return how often a stage was started, including the current start; `unknown` if there is no valid record."""
    try:
        return int(read_json(folder / "attempt.json")["attempt"])
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError):
        return unknown
