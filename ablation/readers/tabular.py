"""Read tables that other programs wrote: row by row (CSV, JSON lines, Parquet), or as columns by a DuckDB query.

An unreadable row is an error, because a dropped item would change a mean. For a log, whose end may be cut off, a caller
passes `torn`, which is called instead.
"""

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.config.names import suggest
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import read_json, regular
from ablation.readers.columns import number

NOTHING: Mapping[str, str] = MappingProxyType({})
SUFFIXES = (".csv", ".jsonl", ".parquet")
_WHOLE = "write the file again; a program that was killed may have left an incomplete line"
_LIKELY = {"items": ("pred", "eval", "sample", "score", "answer"), "metrics": ("log", "train", "loss", "hist")}
_LONGEST = 64 << 20  # characters, or bytes, of a line
MOST_ROWS, MOST_BYTES = 20_000_000, 1 << 30  # of a Parquet file, unpacked
_BATCH = 64  # rows: each may be a long text

Row = tuple[int, dict[str, Any]]
"""Number of the line or row, counted from 1, and {column: cell}."""

Refuse = Callable[[int, str, Any], None]
"""Function that gets line, column and content of a cell of the wrong type. If it returns, the cell is left out."""


@lru_cache(maxsize=4)
def first_row(path: Path) -> dict[str, Any]:
    """Return the first object in a `.jsonl` file, or in the array of a `.json` file; {} if there is none."""
    if path.suffix not in (".jsonl", ".json"):
        return {}
    with path.open("rb") as handle:
        if path.suffix == ".json":
            text = handle.read(1 << 20).decode("utf-8-sig", "ignore").lstrip()
            line = text.removeprefix("[").lstrip() if text.startswith("[") else ""
        else:
            lines = islice(iter(partial(handle.readline, _LONGEST), b""), 1000)
            line = next((line for line in lines if line.strip()), b"").decode("utf-8", "replace")
    try:
        row, _ = json.JSONDecoder().raw_decode(line.strip())
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def file_at(path: Path, stem: str) -> Path:
    """Return the table at a path: the path itself or, in a folder, the table called `stem`.

    Raises ConfigError if the table does not exist, or exists more than once.
    """
    if path.is_dir():
        files = [path / f"{stem}{suffix}" for suffix in SUFFIXES if (path / f"{stem}{suffix}").is_file()]
        if len(files) != 1:
            names = ", ".join(f"{stem}{suffix}" for suffix in SUFFIXES)
            problem = f"holds {'more than one' if files else 'none'} of {names}"
            others = sorted(file.name for file in path.iterdir() if file.suffix in SUFFIXES)
            others.sort(key=lambda name: not any(word in name.lower() for word in _LIKELY.get(stem, ())))
            others.sort(key=lambda name: name.startswith(("metrics.", "items.")))  # which another reader takes
            alternative = "" if files or not others else f", or name another file: `{{{stem}: {others[0]}}}`"
            raise ConfigError(path, "", None, problem, f"let the program write exactly one of them{alternative}")
        return files[0]
    if path.suffix not in SUFFIXES or not path.is_file():
        raise ConfigError(path, "", None, "is not a table", f"name a file that ends in {', '.join(SUFFIXES)}")
    return path


def renamed(file: Path, columns: Mapping[str, str], values: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a table, with columns renamed; `columns` is {new name: name in the file}.

    Raises ConfigError if a column in `columns` or `values` does not exist, or if the table cannot be read.
    """
    called = {column: name for name, column in columns.items()}
    for line, row in rows_of(file):
        if missing := next((column for column in (*called, *values) if column not in row), None):
            remedy = suggest(missing, list(row))
            raise ConfigError(file, f"line {line}", missing, "the column does not exist", remedy)
        kept = {name: cell for name, cell in row.items() if name in called or name not in columns}
        yield line, {called.get(name, name): cell for name, cell in kept.items()}


def rows_of(file: Path, wanted: Callable[[str], bool] | None = None) -> Iterator[Row]:
    """Yield (number, row) for each row of a table; from a Parquet file, only the columns that `wanted` accepts.

    Raises ConfigError if the file or a row cannot be read.
    """
    try:
        if file.suffix == ".parquet":
            columns = None if wanted is None else [name for name in parquet_names(file) if wanted(name)]
            yield from enumerate((row for batch in parquet_batches(file, columns) for row in batch.to_pylist()), 1)
        elif file.suffix == ".jsonl":
            yield from json_rows(file)
        elif file.suffix == ".json":
            yield from enumerate(_array(file), 1)
        else:
            yield from csv_rows(file)
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 or UTF-16 text ({one_line(error, 200)})"
        raise ConfigError(file, "", None, problem, "save the file as UTF-8") from None
    except (csv.Error, pa.ArrowException, OSError) as error:
        raise ConfigError(file, "", None, f"cannot be read ({one_line(error, 200)})", _WHOLE) from None


def parquet_names(file: Path) -> list[str]:
    """Return the columns of a Parquet file; none for another file. Raises ConfigError if the file cannot be read."""
    if file.suffix != ".parquet":
        return []
    try:
        return list(pq.read_schema(regular(file)).names)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(file, "", None, f"cannot be read ({one_line(error, 200)})", _WHOLE) from None


def parquet_batches(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file in small batches.

    Raises ConfigError if there are more than MOST_ROWS, or if they unpack to more than MOST_BYTES: a short file can
    refer to one long text a million times.
    """
    with pq.ParquetFile(regular(file)) as content:
        if content.metadata.num_rows > MOST_ROWS:
            raise _too_large(file, f"has {content.metadata.num_rows:,} rows")
        size = 0
        for batch in content.iter_batches(_BATCH, columns=columns):
            size += batch.nbytes
            if size > MOST_BYTES:
                raise _too_large(file, f"unpacks to more than {MOST_BYTES >> 30} GiB")
            yield batch


def _too_large(file: Path, problem: str) -> ConfigError:
    bounds = f"at most {MOST_ROWS:,} rows and {MOST_BYTES >> 30} GiB are read"
    return ConfigError(file, "", None, f"{problem}, but {bounds}", "split the file, or leave out columns of long texts")


def _array(file: Path) -> list[dict[str, Any]]:
    try:
        rows = read_json(file, MOST_BYTES)
    except ValueError as error:
        raise ConfigError(file, "", None, f"cannot be read ({one_line(error, 200)})", _WHOLE) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(file, "", None, "is not a JSON array of objects", "write an object for each row")
    return rows


def json_rows(file: Path, torn: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Yield (line number, object) for each non-empty line of a file of JSON lines.

    Raises ConfigError for any other line; with `torn`, such a line is reported and left out. A line that is too long is
    always an error, because the rest of it may be gigabytes.
    """
    with regular(file).open("rb") as lines:
        for number, line in enumerate(iter(partial(lines.readline, _LONGEST), b""), 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                yield number, row
            elif torn is not None and len(line) < _LONGEST:
                torn(number)
            else:
                problem = f"is longer than {_LONGEST >> 20} MiB" if len(line) == _LONGEST else "is not a JSON object"
                raise ConfigError(file, f"line {number}", line[:60].decode("utf-8", "replace"), problem, _WHOLE)


def csv_rows(file: Path, torn: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Yield (line number, row) for each non-empty row of a CSV or TSV file.

    Raises ConfigError for a row with more or fewer cells than the heading; with `torn`, it is reported and left out.
    """
    csv.field_size_limit(_LONGEST)
    with regular(file).open(encoding=_encoding(file), errors="replace" if torn else "strict", newline="") as text:
        first, skipped = text.readline(_LONGEST), 0
        if named := re.fullmatch(r"sep=(.)\s*", first):  # which Excel reads and does not show
            first, skipped = text.readline(_LONGEST), 1
        comma = "\t" if file.suffix == ".tsv" else named[1] if named else _delimiter(first)
        lines = chain([first], iter(partial(text.readline, _LONGEST), ""))
        reader = csv.reader(lines, delimiter=comma, strict=torn is None)
        head = next(reader, [])
        if twice := {name for name in head if name and head.count(name) > 1}:
            raise ConfigError(file, "line 1", min(twice), "is the name of several columns", "rename all but one")
        for cells in reader:
            line = reader.line_num + skipped
            if len(cells) == len(head):
                yield line, dict(zip(head, cells, strict=True))
            elif cells and torn is not None:
                torn(line)
            elif cells:
                problem = f"has {len(cells)} cells, but the heading has {len(head)}"
                raise ConfigError(file, f"line {line}", None, problem, _WHOLE)


def _encoding(file: Path) -> str:
    """Return the encoding of a text file.

    It is UTF-16 if the file begins with its byte order mark, or if one of its first two bytes is zero, else UTF-8.
    """
    with file.open("rb") as handle:
        start = handle.read(2)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return "utf-8-sig" if b"\0" not in start else "utf-16-be" if start.startswith(b"\0") else "utf-16-le"


def _delimiter(head: str) -> str:
    """Return the delimiter, `,`, `;` or tab, that splits a line into the most columns."""
    return max(",;\t", key=lambda sign: len(next(csv.reader([head], delimiter=sign), [])))


def points(
    rows: Iterable[Row], step: str, names: Mapping[str, str], refuse: Refuse
) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) for each non-empty cell in the columns of metrics; `names` is {column: name}."""
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
    """Return a cell as a whole number of at most 64 bits, also from `5.0`; None for anything else and for booleans."""
    match = re.fullmatch(r"([-+]?[0-9]{1,19})(\.0*)?", str(cell).strip())
    return int(match[1]) if match and abs(int(match[1])) < 2**63 else None


MEMORY = "400MB"
LARGEST_ROW = 32 << 20  # bytes of one line of JSON; DuckDB keeps two of them for each thread


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    settings: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": tempfile.gettempdir(), "threads": 2}
    return duckdb.connect(config=settings)


def sql_text(value: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_name(value: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + value.replace('"', '""') + '"'


def sql_number(column: str) -> str:
    """Return SQL for a column as DOUBLE: 1 or 0 for a boolean, NULL for text and `1_0`, which DuckDB reads as 10."""
    text = f"lower(trim(CAST({column} AS VARCHAR)))"
    number = f"WHEN NOT contains({text}, '_') THEN TRY_CAST({column} AS DOUBLE)"
    return f"CASE WHEN {text} = 'true' THEN 1.0 WHEN {text} = 'false' THEN 0.0 {number} END"


def sql_digest(expression: str) -> str:
    """Return SQL for a 64-bit digest of a text, 0 for NULL; unlike DuckDB's `hash`, it never changes."""
    return f"coalesce(md5_number_lower({expression}), 0)"


def query(path: Path, sql: str, parameters: list[Any] | None = None) -> dict[str, Any]:
    """Return the columns of a DuckDB query as numpy arrays; {file} in the query is replaced by the file.

    Raises ConfigError if the file does not have the form that the query expects, and TrackerError if the result does
    not fit into memory.
    """
    # DuckDB takes these signs for patterns; a descriptor has none of them.
    with path.open("rb") as handle:
        plain = not re.search(r"[*?\[\]{}]", str(path))
        place = str(path.resolve()) if plain else f"/dev/fd/{handle.fileno()}"
        try:
            columns = _connection().execute(sql.replace("{file}", sql_text(place)), parameters or []).fetchnumpy()
        except duckdb.OutOfMemoryException as error:
            what = f"does not fit into {MEMORY} of memory ({one_line(error, 300)}); split the file"
            raise TrackerError(f"{path}: {what}") from None
        except duckdb.Error as error:
            message = one_line(str(error).split("\n")[0], 300).replace(place, path.name)
            raise ConfigError(path, "", None, f"cannot be read ({message})", _WHOLE) from None
    return {column: _plain(values) for column, values in columns.items()}


def _plain(values: Any) -> Any:
    """Return a column as an array without a mask: NaN for a missing number, None for a missing text."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if values.dtype.kind == "O":
        unmasked = np.array(values.data, dtype=object)
        unmasked[np.ma.getmaskarray(values)] = None  # `filled` would write a question mark
        return unmasked
    if not np.ma.is_masked(values):
        return values.data
    return np.where(np.ma.getmaskarray(values), np.nan, values.data.astype(float))
