"""Files that any program can write: `metrics` and `items`, as CSV, JSON lines or Parquet.

metrics: `step,name,value`, or `step` and a column for each metric; an empty cell, or a null, is no value.

items: `item,value` and, if wanted, `subset` (else `all`), `protocol` (else `test`), `name` (else `value`) and
`cluster`; or, instead of `value`, a column of numbers for each name. A column `seed` is not looked at: a stage has one.
Tables of several seeds, whose items two evaluations pair, are read by `tracker.evaluations.plain`.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contract.errors import ConfigError
from tracker.imports.run import ITEM_ROWS, METRIC_ROWS, ImportedRun, Problem

SUFFIXES = (".csv", ".jsonl", ".parquet")
_WORDS = {"item": None, "subset": "all", "protocol": "test", "name": "value", "cluster": None}
_NOT_VALUES = {*_WORDS, "seed", "value"}


def read_metrics(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the run whose metrics a file holds, or `metrics.*` in a folder. Raises ConfigError."""
    file = _file(path, "metrics")
    rows: dict[tuple[int, str], float] = {}
    for line, row in _rows(file, problem):
        step = _number(row.get("step"))
        if step is None or not step.is_integer():
            raise ConfigError(
                file, f"line {line}: step", row.get("step"), "is no whole number", "write one in each row"
            )
        if "name" in row and "value" in row:
            value = _number(row["value"])
            if value is None:
                raise ConfigError(file, f"line {line}: value", row["value"], "is no number", "write one in each row")
            rows[int(step), str(row["name"])] = value
            continue
        for name, cell in row.items():
            if name == "step" or cell in ("", None):
                continue
            if (value := _number(cell)) is None:
                problem(f"{file}: line {line}: {name} is no number, and is left out")
            else:
                rows[int(step), name] = value
    columns = [[step for step, _ in rows], [name for _, name in rows], list(rows.values())]
    yield _run(file, metrics=pa.table(columns, schema=METRIC_ROWS))


def read_items(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the run whose evaluation items a file holds, or `items.*` in a folder. Raises ConfigError."""
    file = _file(path, "items")
    found: dict[str, list[Any]] = {name: [] for name in ITEM_ROWS.names}
    for line, row in _rows(file, problem):
        if row.get("item") in ("", None):
            raise ConfigError(file, f"line {line}: item", None, "is missing", "name the item of each row")
        words = {word: default if row.get(word) in ("", None) else str(row[word]) for word, default in _WORDS.items()}
        named = {words["name"]: row["value"]} if "value" in row else _values(row)
        if not named:
            raise ConfigError(
                file, f"line {line}: value", None, "is missing", "add a column `value`, or one for each name"
            )
        for name, cell in named.items():
            value = _number(cell)
            if value is None or math.isnan(value):
                problem_ = "is no number" if value is None else "is NaN, which nothing can be compared with"
                raise ConfigError(file, f"line {line}: {name}", cell, problem_, "write a number for each item")
            for column, content in (words | {"name": name, "value": value}).items():
                found[column].append(content)
    yield _run(file, items=pa.table(found, schema=ITEM_ROWS))


def _values(row: Mapping[str, Any]) -> dict[Any, Any]:
    return {name: cell for name, cell in row.items() if name not in _NOT_VALUES and _number(cell) is not None}


def _run(file: Path, metrics: pa.Table | None = None, items: pa.Table | None = None) -> ImportedRun:
    return ImportedRun(
        source=file,
        id=file.name,
        name=file.stem,
        config={},
        seed=None,
        state="finished",
        started=None,
        metrics=METRIC_ROWS.empty_table() if metrics is None else metrics,
        items=items,
    )


def _file(path: Path, stem: str) -> Path:
    """Return the file at a path: itself, or the one called `stem` in a folder. Raises ConfigError."""
    if path.is_dir():
        found = [path / f"{stem}{suffix}" for suffix in SUFFIXES if (path / f"{stem}{suffix}").is_file()]
        if len(found) != 1:
            names = ", ".join(f"{stem}{suffix}" for suffix in SUFFIXES)
            problem = "is there more than once" if found else "is not there"
            raise ConfigError(path, "", stem, problem, f"let the program write one of {names}")
        return found[0]
    if path.suffix not in SUFFIXES or not path.is_file():
        raise ConfigError(path, "", None, "is no table", f"name a file {', '.join(SUFFIXES)}")
    return path


def _rows(file: Path, problem: Problem) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line, or row, and its cells by column."""
    try:
        if file.suffix == ".parquet":
            number = 0
            for batch in pq.ParquetFile(file).iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        elif file.suffix == ".jsonl":
            yield from _json_lines(file, problem)
        else:
            with file.open(encoding="utf-8", newline="") as text:
                reader = csv.DictReader(text)
                for row in reader:
                    if None in row or None in row.values():
                        problem(f"{file}: line {reader.line_num} has not as many cells as the head, and is left out")
                    else:
                        yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        raise ConfigError(file, "", None, f"cannot be read ({error})", "write it again") from None


def _json_lines(file: Path, problem: Problem) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                problem(f"{file}: line {number} is no JSON object, and is left out")
            elif row:
                yield number, row


def _number(cell: Any) -> float | None:
    """Return a cell as a number: of a truth value 1 or 0; None for what is none."""
    if cell is None or isinstance(cell, list | dict):
        return None
    if isinstance(cell, str) and cell.strip().lower() in ("true", "false"):
        return float(cell.strip().lower() == "true")
    try:
        return float(cell)
    except (ValueError, TypeError, OverflowError):
        return None
