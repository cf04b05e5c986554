"""Reading tables with DuckDB: only the columns asked for, in bounded memory, with errors of one line."""

import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ablation.contract.errors import ConfigError, TrackerError

MEMORY = "400MB"
LARGEST_ROW = 32 << 20  # bytes of one line of JSON; DuckDB keeps two of them for each thread


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    settings: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": tempfile.gettempdir(), "threads": 2}
    return duckdb.connect(config=settings)


def text(value: str) -> str:
    """A literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """An identifier of SQL."""
    return '"' + value.replace('"', '""') + '"'


def number(column: str) -> str:
    """A text column as DOUBLE in SQL, NULL where it is not a number; for DuckDB alone `1_0` would be 10."""
    return f"CASE WHEN NOT contains(CAST({column} AS VARCHAR), '_') THEN TRY_CAST({column} AS DOUBLE) END"


def digest(expression: str) -> str:
    """64 bits of a text in SQL, 0 of none: the same in every version of DuckDB, which its `hash` is not."""
    return f"coalesce(md5_number_lower({expression}), 0)"


def query(path: Path, sql: str, parameters: list[Any] | None = None) -> dict[str, Any]:
    """Run a query of one file, which it names as {file}; return its columns as numpy arrays.

    Raises:
        ConfigError: the file is not of the form that the query asks for.
    """
    # DuckDB takes these signs for patterns; a descriptor has none of them.
    with path.open("rb") as handle:
        plain = not re.search(r"[*?\[\]{}]", str(path))
        place = str(path.resolve()) if plain else f"/dev/fd/{handle.fileno()}"
        try:
            found = _connection().execute(sql.replace("{file}", text(place)), parameters or []).fetchnumpy()
        except duckdb.OutOfMemoryException as error:
            raise TrackerError(f"{path}: does not fit into {MEMORY} of memory ({_first(error)})") from None
        except duckdb.Error as error:
            said = _first(error).replace(place, path.name)
            raise ConfigError(
                path, "", None, f"cannot be read ({said})", "is the file whole, and of this format?"
            ) from None
    return {column: _plain(values) for column, values in found.items()}


def _plain(values: Any) -> Any:
    """Without masks: NaN where a number is missing, None where a text is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if values.dtype.kind == "O":
        whole = np.array(values.data, dtype=object)
        whole[np.ma.getmaskarray(values)] = None  # `filled` would write a question mark
        return whole
    if not np.ma.is_masked(values):
        return values.data
    return np.where(np.ma.getmaskarray(values), np.nan, values.data.astype(float))


def _first(error: Exception) -> str:
    return " ".join(str(error).split("\n")[0].split())[:300]
