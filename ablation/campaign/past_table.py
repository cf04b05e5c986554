"""Read the table of a past campaign: TSV or CSV with a row for each attempt, such as the `results.tsv` of a loop.

Columns are a metric, a status and perhaps a name (`commit`) and a description. What cannot be read is left out and
counted: prose between the rows, rows of another width, unknown statuses, and numbers that stand for a missing value.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from ablation.config.names import suggest
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import stated
from ablation.contract.reading import read_text
from ablation.readers.columns import number

_NAMES = ("commit", "git_commit", "hash", "sha", "id", "tag", "name", "experiment", "exp", "run")
_TEXTS = ("description", "desc", "note", "notes", "change", "hypothesis", "message", "summary")
_NO_METRIC = re.compile(r"memory|mem$|_gb$|time|second|date|step|epoch|seed|params|cycle|improvement", re.IGNORECASE)
_KEPT = ("keep", "kept", "accept", "accepted", "baseline", "champion", "best")
_DISCARDED = ("discard", "discarded", "reject", "rejected", "revert", "reverted", "drop", "dropped")
_ENDED = ("ok", "done", "success", "complete", "completed", "finished", "partial", "tentative")
_CRASHES = ("crash", "crashed", "fail", "failed", "error", "timeout", "oom", "nan")
_DECISIONS = ("status", "decision", "outcome", "verdict", "result")
_NO_NAMES = ("", "-", "unknown", "none", "n/a", "na", "null", "uncommitted")
_SENTINELS = (0.0, -1.0, 99.0, 999.0, 9999.0, 99999.0)  # of either sign; loops write them for a missing value
_FAR = 20.0  # a sentinel is so many times the spread of all other values away from them


@dataclass(frozen=True)
class Attempt:
    """One row of a table of attempts.

    `value` is None for a crash. `kept` is None if the status says only that the run ended.
    """

    name: str
    value: float | None
    kept: bool | None
    text: str = ""


@dataclass(frozen=True)
class Table:
    """The attempts of a table in order, its metric, and the number of rows left out for each reason."""

    attempts: list[Attempt]
    metric: str
    left_out: Counter[str]


def read_table(path: Path, metric: str | None) -> Table:
    """Read a table of attempts with the named metric, or else the first column that looks like a metric.

    Raises ConfigError.
    """
    text = _text(path)
    lines = text.splitlines()
    comma = "\t" not in next(line for line in lines if line.strip())
    rows = [row for row in csv.reader(lines, delimiter="," if comma else "\t") if any(cell.strip() for cell in row)]
    head, rows = [cell.strip() for cell in rows[0]], rows[1:]
    lower = [cell.lower() for cell in head]
    status = next((lower.index(word) for word in _DECISIONS if word in lower), None)
    if status is None:
        remedy = "add a column `status` with keep, discard or crash in each row"
        raise ConfigError(
            path, "line 1", one_line(" ".join(head), 100), "has no column that says which attempts were kept", remedy
        )
    name = next((lower.index(word) for word in _NAMES if word in lower), None)
    text_place = next((lower.index(word) for word in _TEXTS if word in lower), None)
    left_out: Counter[str] = Counter()
    whole = []
    for cells in rows:
        row = cells
        if comma and text_place == len(head) - 1 and len(row) > len(head):  # commas in an unquoted description
            row = [*row[: len(head) - 1], ",".join(row[len(head) - 1 :])]
        if len(row) == len(head) or (len(row) == len(head) - 1 and text_place == len(row)):
            whole.append([*row, ""][: len(head)])
        else:
            left_out["the number of cells differs from the heading"] += 1
    others = [place for place in range(len(head)) if place not in (name, status, text_place)]
    value = _metric(path, head, whole, others, metric)
    ends = text.rstrip(" \t").endswith(("\n", "\r"))
    if not ends and value == len(head) - 1 and rows and len(rows[-1]) == len(head):
        whole.pop()
        left_out["the last line has no newline, so its number may be cut off"] += 1
    attempts = []
    for place, row in enumerate(whole, 1):
        word, measured = row[status].strip().lower(), _finite(row[value])
        label = row[name].strip() if name is not None else ""
        label = f"#{place}" if label.lower() in _NO_NAMES else label
        said = "" if text_place is None else one_line(row[text_place].strip(), 60)
        if word in _CRASHES or (measured is None and row[value].strip().lower() in _CRASHES):
            attempts.append(Attempt(label, None, False, said))
        elif word not in (*_KEPT, *_DISCARDED, *_ENDED):
            left_out[f"unknown status {one_line(word, 20)!r}"] += 1
        elif measured is None:
            left_out[f"no number in the column {head[value]}"] += 1
        else:
            attempts.append(Attempt(label, measured, None if word in _ENDED else word in _KEPT, said))
    return Table(_without_sentinels(attempts, left_out), head[value], left_out)


def _text(path: Path) -> str:
    try:
        text = read_text(path).lstrip("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({one_line(error, 200)})"
        raise ConfigError(path, "", None, problem, "name a TSV or CSV file") from None
    if not text.strip():
        raise ConfigError(path, "", None, "is empty", "wait until the first attempts have run")
    return text


def _metric(
    path: Path, head: Sequence[str], rows: Sequence[Sequence[str]], places: Sequence[int], name: str | None
) -> int:
    numbers = [place for place in places if any(_finite(row[place]) is not None for row in rows)]
    if name is not None:
        if name not in head:
            raise ConfigError(path, "--metric", name, "is not a column", suggest(name, [head[p] for p in numbers]))
        return head.index(name)
    likely = [place for place in numbers if not _NO_METRIC.search(head[place])]
    if not likely:
        raise ConfigError(
            path, "--metric", None, "no column of numbers looks like a metric", "name the metric with --metric NAME"
        )
    return likely[0]


def _finite(cell: str) -> float | None:
    value = number(cell)
    return value if value is not None and abs(value) < float("inf") else None


def _without_sentinels(attempts: list[Attempt], left_out: Counter[str]) -> list[Attempt]:
    """Return the attempts; a value such as 0 or -999 that is far from all others makes its attempt a crash."""
    values = [each.value for each in attempts if each.value is not None and abs(each.value) not in _SENTINELS]
    if not values:
        return attempts
    middle = median(values)
    spread = max(max(values) - min(values), 1e-3 * abs(middle))
    low, high = min(values), max(values)
    kept = []
    for attempt in attempts:
        each, value = attempt, attempt.value
        if value is not None and abs(value) in _SENTINELS:
            away = max(low - value, value - high)
            if away > (_FAR if abs(value) > 1 else 2.0) * spread:
                left_out[f"the value {stated(value)} is far from all others, so it counts as a crash"] += 1
                each = replace(each, value=None, kept=False)
        kept.append(each)
    return kept


def resolved(attempts: Sequence[Attempt], smaller: bool) -> tuple[list[Attempt], int]:
    """Return the attempts, each marked as kept or not, and the number of attempts that had no such mark.

    An attempt without a mark counts as kept if its value is the best so far.
    """
    best, out, sign = -math.inf, [], -1 if smaller else 1
    for each in attempts:
        value = -math.inf if each.value is None else sign * each.value
        kept = value > best if each.kept is None else each.kept
        best = max(best, value) if kept else best
        out.append(replace(each, kept=kept))
    return out, sum(each.kept is None for each in attempts)
