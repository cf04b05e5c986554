"""Tables that others wrote (CSV, JSON lines, Parquet), row by row, and the numbers in their cells.

The program has ended well, so what cannot be read is an error: an item that was dropped would change a mean. Who reads
what may be torn says what happens instead (`ablation.readers.wandb_csv`).
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line
from ablation.readers.run import as_number

SUFFIXES = (".csv", ".jsonl", ".parquet")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE)
_WHOLE = "write it again, whole; a program that was killed may have left half a line"
_LONGEST = 64 << 20  # characters of a line

Row = tuple[int, dict[str, Any]]
"""Number of the line, or of the row, and the cells by column."""

Refuse = Callable[[int, str, Any], None]
"""Told of a cell that is not what its column holds: line, column, cell. Where it returns, the cell is left out."""


def file_at(path: Path, stem: str) -> Path:
    """Return the table at a path: itself, or the one called `stem` in a folder. Raises ConfigError."""
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


def rows_of(file: Path) -> Iterator[Row]:
    """Yield the rows of a table. Raises ConfigError, which names the line."""
    try:
        if file.suffix == ".parquet":
            batches = pq.ParquetFile(file).iter_batches()
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
        elif file.suffix == ".jsonl":
            yield from _json_rows(file)
        else:
            yield from _csv_rows(file)
    except (UnicodeDecodeError, csv.Error, pa.ArrowException, OSError) as error:
        raise ConfigError(file, "", None, f"cannot be read ({one_line(error, 200)})", _WHOLE) from None


def _json_rows(file: Path) -> Iterator[Row]:
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


def _csv_rows(file: Path) -> Iterator[Row]:
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


def points(
    rows: Iterable[Row], step: str, names: Mapping[str, str], refuse: Refuse
) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) of a table with a column for each metric, {column: name}; empty cells hold none."""
    for line, row in rows:
        if (at := whole(row.get(step))) is None:
            refuse(line, step, row.get(step))
            continue
        for column, name in names.items():
            cell = row.get(column)
            if cell in ("", None):
                continue
            if (value := number(cell)) is None:
                refuse(line, column, cell)
            else:
                yield at, name, value


def whole(cell: Any) -> int | None:
    """Return a cell as a whole number of 64 bits, which may end in `.0`; None for anything else, also a truth value."""
    match = re.fullmatch(r"([-+]?[0-9]{1,19})(\.0*)?", str(cell).strip())
    return int(match[1]) if match and abs(int(match[1])) < 2**63 else None


def number(cell: Any) -> float | None:
    """Return a cell as a number: of a truth value 1 or 0; None for anything else."""
    if isinstance(cell, str):
        word = cell.strip().lower()
        return float(word == "true") if word in ("true", "false") else float(word) if _NUMBER.fullmatch(word) else None
    return as_number(cell)
