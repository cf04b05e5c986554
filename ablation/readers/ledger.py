"""A ledger of attempts: a TSV or CSV file with a row for each, as autoresearch writes `results.tsv`.

Columns: a name (`commit`), a metric, a status (`keep`, `discard`, `crash`) and perhaps a description.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ablation.config.names import suggest
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_text
from ablation.readers.columns import number
from ablation.readers.tabular import Row

_NAMES = ("commit", "hash", "id", "name", "experiment", "run")
_TEXTS = ("description", "note", "notes", "change", "hypothesis", "message")
_NO_METRIC = re.compile(r"memory|mem$|_gb$|time|second|date|step|epoch|seed|params", re.IGNORECASE)
_KEPT = ("keep", "kept", "accept", "accepted", "baseline", "champion")
_DISCARDED = ("discard", "discarded", "reject", "rejected", "revert", "reverted")
_DECISIONS = ("status", "decision", "outcome", "verdict")
_CRASHES = ("crash", "crashed", "fail", "failed", "error", "timeout", "oom")


@dataclass(frozen=True)
class Attempt:
    """One row of a ledger; `value` is None for a crash."""

    name: str
    value: float | None
    kept: bool
    text: str = ""


def read_ledger(path: Path, metric: str | None) -> tuple[list[Attempt], str]:
    """Return the attempts in the order of the file, and the metric: the one asked for, or the first column of numbers.

    Raises ConfigError.
    """
    try:
        lines = read_text(path).lstrip("\ufeff").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({one_line(error, 200)})"
        raise ConfigError(path, "", None, problem, "name a TSV or CSV file") from None
    reader = csv.DictReader(lines, delimiter="\t" if lines and "\t" in lines[0] else ",", restval="")
    head = [column.strip() for column in reader.fieldnames or ()]
    reader.fieldnames = head
    rows = [(reader.line_num, row) for row in reader if any(row[column].strip() for column in head)]
    name = _column(path, head, _NAMES, "a column that names the attempts")
    status = _column(path, head, _DECISIONS, "a column status (keep, discard, crash)")
    told = next((column for column in head if column.strip().lower() in _TEXTS), "")
    value = _metric(path, rows, [column for column in head if column not in (name, status, told)], metric)
    attempts = []
    for line, row in rows:
        word = row[status].strip().lower()
        if word not in (*_KEPT, *_DISCARDED, *_CRASHES):
            problem = "is not a known status"
            raise ConfigError(path, f"line {line}: {status}", row[status], problem, "keep, discard, crash")
        measured = None if word in _CRASHES else _finite(row[value])
        if measured is None and word not in _CRASHES:
            raise ConfigError(path, f"line {line}: {value}", row[value], "is not a number", "correct it, or: crash")
        said = one_line(row.get(told, "").strip(), 60)
        attempts.append(Attempt(row[name].strip(), measured, word in _KEPT, said))
    if sum(attempt.value is not None for attempt in attempts) < 3:
        raise ConfigError(path, "", None, "has fewer than three attempts with a value", "wait for more")
    return attempts, value


def _column(path: Path, head: Sequence[str], names: Sequence[str], what: str) -> str:
    lower = {column.strip().lower(): column for column in head}
    for name in names:
        if name in lower:
            return lower[name]
    raise ConfigError(path, "line 1", "\t".join(head), f"lacks {what}", f"call it {names[0]}")


def _metric(path: Path, rows: Sequence[Row], columns: Sequence[str], metric: str | None) -> str:
    numbers = [column for column in columns if any(_finite(row[column]) is not None for _, row in rows)]
    if metric is not None and metric not in columns:
        raise ConfigError(path, "--metric", metric, "is not a column", suggest(metric, numbers))
    likely = [metric] if metric else [column for column in numbers if not _NO_METRIC.search(column)]
    if not likely:
        raise ConfigError(path, "--metric", None, "no column of numbers looks like a metric", "name one: --metric NAME")
    return likely[0]


def _finite(cell: str) -> float | None:
    value = number(cell)
    return value if value is not None and abs(value) < float("inf") else None
