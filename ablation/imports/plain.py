"""Files that any program can write: `metrics` and `items`, as CSV, JSON lines or Parquet.

metrics: `step,name,value`, or `step` and a column for each metric; an empty cell, or a null, is not a value.

items: `item,value` and, if wanted, `subset` (else `all`), `protocol` (else `test`), `name` (else `value`) and
`cluster`; or, instead of `value`, a column of numbers for each name, in which every item has one. Not read are columns
without any number, `seed`, and words: `prompt`, `question`, `text`, `response`, `reference`, `target`, `answer`. Nor is
a column without a name: pandas writes its index as one.
Tables of several seeds, whose items two evaluations pair, are read by `ablation.evaluations.plain`.

The program has ended well, so what cannot be read is an error: an item that was dropped would change a mean.
"""

import csv
import json
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line
from ablation.contract.rows import LONGEST_NAME
from ablation.imports.run import ITEM_ROWS, METRIC_ROWS, ImportedRun, Problem, as_number, as_text

SUFFIXES = (".csv", ".jsonl", ".parquet")
_WORDS = {"item": None, "subset": "all", "protocol": "test", "name": "value", "cluster": None}
_TEXTS = {"prompt", "question", "text", "response", "reference", "target", "answer"}
_NOT_VALUES = {*_WORDS, *_TEXTS, "seed", "value", ""}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE)
_NUMBERS = "write a number, or leave the cell empty"
_EACH = "write a number for each item; a column of words may be called `text`"
_WHOLE = "write it again, whole; a program that was killed may have left half a line"
_LONGEST = 64 << 20  # characters of a line


def read_metrics(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the run whose metrics a file holds, or `metrics.*` in a folder. Raises ConfigError."""
    file = _file(path, "metrics")
    found: dict[tuple[int, str], float] = {}
    rows = list(_rows(file))
    numbers = {name for _, row in rows for name, cell in row.items() if _number(cell) is not None} - {"step", ""}
    if words := sorted({as_text(name) for _, row in rows for name in row} - numbers - {"step", "name", "value", ""}):
        problem(f"{file}: holds no numbers in the columns {', '.join(words)}")
    for line, row in rows:
        step = _step(row.get("step"))
        if step is None:
            problem_ = "is not a whole number of 64 bits"
            raise ConfigError(file, f"line {line}: step", row.get("step"), problem_, "write one in each row")
        named = "name" in row and "value" in row
        cells = {row["name"]: row["value"]} if named else {name: row.get(name) for name in numbers}
        for name, cell in cells.items():
            if cell in ("", None):
                continue
            if (value := _number(cell)) is None:
                raise ConfigError(file, f"line {line}: {as_text(str(name))}", cell, "is not a number", _NUMBERS)
            found[step, as_text(str(name))] = value
    columns = [[step for step, _ in found], [name for _, name in found], list(found.values())]
    yield _run(file, metrics=pa.table(columns, schema=METRIC_ROWS))


def read_items(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the run whose evaluation items a file holds, or `items.*` in a folder. Raises ConfigError."""
    file = _file(path, "items")
    found: dict[str, list[Any]] = {name: [] for name in ITEM_ROWS.names}
    rows = list(_rows(file))
    numbers = {name for _, row in rows for name in row.keys() - _NOT_VALUES if _number(row[name]) is not None}
    long = any("value" in row for _, row in rows)
    for line, row in rows:
        if row.get("item") in ("", None):
            remedy = f"name the item of each row; the columns are {one_line(', '.join(map(str, row)), 200)}"
            raise ConfigError(file, f"line {line}: item", None, "is missing", remedy)
        words = {
            word: default if row.get(word) in ("", None) else as_text(str(row[word]))
            for word, default in _WORDS.items()
        }
        if longer := next((word for word, text in words.items() if len(text or "") > LONGEST_NAME), None):
            problem_ = f"is longer than {LONGEST_NAME} characters"
            raise ConfigError(file, f"line {line}: {longer}", words[longer], problem_, "use a number or a digest")
        values = {words["name"]: row.get("value")} if long else {name: row.get(name) for name in sorted(numbers)}
        if not values:
            raise ConfigError(
                file, f"line {line}: value", None, "is missing", "add a column `value`, or one for each name"
            )
        for name, cell in values.items():
            value = _number(cell)
            if value is None or not math.isfinite(value):
                problem_ = "is not a number" if value is None else "cannot be compared with anything"
                raise ConfigError(file, f"line {line}: {name}", cell, problem_, _EACH)
            for column, content in (words | {"name": as_text(str(name)), "value": value}).items():
                found[column].append(content)
    yield _run(file, items=pa.table(found, schema=ITEM_ROWS))


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
        raise ConfigError(path, "", None, "is not a table", f"name a file {', '.join(SUFFIXES)}")
    return path


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line, or row, and its cells by column."""
    try:
        if file.suffix == ".parquet":
            number = 0
            for batch in pq.ParquetFile(file).iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        elif file.suffix == ".jsonl":
            yield from _json_lines(file)
        else:
            csv.field_size_limit(_LONGEST)
            with file.open(encoding="utf-8-sig", newline="") as text:
                reader = csv.DictReader(iter(partial(text.readline, _LONGEST), ""), strict=True)
                head = reader.fieldnames or []
                if twice := {name for name in head if head.count(name) > 1}:
                    raise ConfigError(file, "line 1", min(twice), "names two columns", "give each a name of its own")
                for row in reader:
                    if None in row or None in row.values():
                        problem = f"does not have {len(head)} cells, as the head has"
                        raise ConfigError(file, f"line {reader.line_num}", None, problem, _WHOLE)
                    yield reader.line_num, row
    except (
        UnicodeDecodeError,
        csv.Error,
        pa.ArrowException,
        OSError,
    ) as error:
        raise ConfigError(file, "", None, f"cannot be read ({one_line(error, 200)})", _WHOLE) from None


def _json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8-sig") as text:
        for number, line in enumerate(iter(partial(text.readline, _LONGEST), ""), 1):
            try:
                row = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                problem = "is too long" if len(line) == _LONGEST else "is not a JSON object"
                raise ConfigError(file, f"line {number}", line[:60], problem, _WHOLE)
            if row:
                yield number, row


def _step(cell: Any) -> int | None:
    """Return a cell as a whole number of 64 bits, which may end in `.0`; None for anything else, also a truth value."""
    match = re.fullmatch(r"([-+]?[0-9]{1,19})(\.0*)?", str(cell).strip())
    return int(match[1]) if match and abs(int(match[1])) < 2**63 else None


def _number(cell: Any) -> float | None:
    """Return a cell as a number: of a truth value 1 or 0; None for anything else."""
    if isinstance(cell, str):
        word = cell.strip().lower()
        return float(word == "true") if word in ("true", "false") else float(word) if _NUMBER.fullmatch(word) else None
    return as_number(cell)
