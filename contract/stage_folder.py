"""The plan's file, where it puts the stages' folders, and how far a stage says that it is."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract.errors import ConfigError
from contract.reading import one_line, read_json

DATABASE = "tracker.duckdb"
_MAX_PLAN = 1 << 30
_LARGEST = 1e15  # of a number that a person reads


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


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan; raise ConfigError where there is none or it cannot be read."""
    try:
        plan = read_json(path, _MAX_PLAN)
    except FileNotFoundError:
        raise ConfigError(path, "", None, "there is no plan", "run `snakemake -n`, which writes it") from None
    except (ValueError, OSError) as error:
        raise ConfigError(path, "", None, f"not JSON ({error})", "delete it and run `snakemake -n`") from None
    if not isinstance(plan, dict) or not {"studies", "stages"} <= plan.keys():
        raise ConfigError(path, "studies, stages", None, "not a plan", "delete it and run `snakemake -n`")
    return plan


def folders(plan: dict[str, Any], results: Path) -> dict[str, Path]:
    """Return {stage key: folder}. Folders follow `results`, also where it was moved after the plan was made."""
    planned = Path(plan.get("results", results))
    found = {}
    for stage in plan["stages"]:
        folder = Path(stage["dir"])
        found[stage["key"]] = results / folder.relative_to(planned) if folder.is_relative_to(planned) else folder
    return found


def read_progress(folder: Path) -> Progress | None:
    """Return the progress of a stage, or None where there is none that can be read and makes sense."""
    try:
        content = read_json(folder / "progress.json")
        numbers = float(content["done"]), float(content["total"])
        times = _seconds(content["started"]), _seconds(content["updated"])
        if not all(abs(number) < _LARGEST for number in (*numbers, *times)):
            return None
        return Progress(*numbers, one_line(content["unit"], 40), *times)
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError):
        return None  # it is a courtesy of the trainer, never a reason to fail


def _seconds(moment: float | str) -> float:
    """Seconds since the epoch of a number of seconds or an ISO 8601 time (UTC where it names no zone)."""
    if isinstance(moment, (int, float)):
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
