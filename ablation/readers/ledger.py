"""A ledger of attempts: a TSV or CSV file with a row for each, as autoresearch writes `results.tsv`.

Columns: a name (`commit`), a metric, a status (`keep`, `discard`, `crash`) and perhaps a description.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from ablation.config.names import suggest
from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line, read_text

_NAMES = ("commit", "hash", "id", "name", "experiment", "run")
_TEXTS = ("description", "note", "notes", "change", "hypothesis", "message")
_NO_METRIC = re.compile(r"memory|mem$|_gb$|time|second|date|step|epoch|seed|params", re.IGNORECASE)
_STATUS = {"keep": True, "kept": True, "accept": True, "accepted": True} | {"baseline": True, "champion": True}
_STATUS |= {
    "discard": False,
    "discarded": False,
    "reject": False,
    "rejected": False,
    "revert": False,
    "reverted": False,
}
_CRASHES = ("crash", "crashed", "fail", "failed", "error", "timeout", "oom")
_SMALLER = re.compile(r"loss|bpb|ppl|perplexity|error|wer|nll|regret", re.IGNORECASE)


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
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            path, "", None, f"cannot be read ({one_line(error, 200)})", "name a TSV or CSV file"
        ) from None
    lines = text.lstrip("\ufeff").splitlines()
    rows = list(csv.reader(lines, delimiter="\t" if lines and "\t" in lines[0] else ","))
    head = [cell.strip() for cell in rows[0]] if rows else []
    lower = [cell.lower() for cell in head]
    name = _column(path, lower, _NAMES, "a column that names the attempts")
    status = _column(
        path, lower, ("status", "decision", "outcome", "verdict"), "a column status (keep, discard, crash)"
    )
    told = next((lower.index(column) for column in _TEXTS if column in lower), None)
    body = [(number, row) for number, row in enumerate(rows[1:], 2) if any(cell.strip() for cell in row)]
    value = _metric(path, head, body, metric, (name, status, told))
    attempts = []
    for number, row in body:
        if len(row) < max(name, status, value) + 1:
            raise ConfigError(path, f"line {number}", ",".join(row), "lacks cells", f"write {', '.join(head)}")
        word = row[status].strip().lower()
        if word not in _STATUS and word not in _CRASHES:
            raise ConfigError(
                path, f"line {number}: status", row[status], "is not a known status", "keep, discard, crash"
            )
        measured = None if word in _CRASHES else _number(row[value])
        if measured is None and word not in _CRASHES:
            raise ConfigError(
                path, f"line {number}: {head[value]}", row[value], "is not a number", "correct it, or: crash"
            )
        said = row[told].strip() if told is not None and told < len(row) else ""
        attempts.append(Attempt(row[name].strip(), measured, _STATUS.get(word, False), one_line(said, 60)))
    if sum(attempt.value is not None for attempt in attempts) < 3:
        raise ConfigError(path, "", None, "has fewer than three attempts with a value", "wait for more")
    return attempts, head[value]


def smaller_is_better(metric: str) -> bool | None:
    """Return True where the metric's name says so (a loss, an error), else None."""
    return True if _SMALLER.search(metric) else None


def _column(path: Path, head: list[str], names: tuple[str, ...], what: str) -> int:
    for name in names:
        if name in head:
            return head.index(name)
    raise ConfigError(path, "line 1", "\t".join(head), f"lacks {what}", f"call it {names[0]}")


def _metric(
    path: Path, head: list[str], body: list[tuple[int, list[str]]], metric: str | None, taken: tuple[int | None, ...]
) -> int:
    numbers = [
        place
        for place, name in enumerate(head)
        if place not in taken and any(_number(row[place]) is not None for _, row in body if place < len(row))
    ]
    if metric is not None:
        if metric not in head:
            raise ConfigError(path, "--metric", metric, "is not a column", suggest(metric, [head[n] for n in numbers]))
        return head.index(metric)
    likely = [place for place in numbers if not _NO_METRIC.search(head[place])]
    if not likely:
        raise ConfigError(path, "--metric", None, "no column of numbers looks like a metric", "name one: --metric NAME")
    return likely[0]


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None
