"""Loads the stages' files into tables; an unreadable file costs only its own stage."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.contract.errors import TrackerError
from ablation.contract.reading import one_line, read_json
from ablation.contract.rows import LONGEST_NAME, OPTIONAL, SHARDS
from ablation.contract.status import TO_COME, StageState, misplaced
from ablation.store.database import TYPES

DOCUMENTS = ("provenance", "weights")
_REASON = 500  # characters
_FILES = 200  # files of a statement, whose time grows with their square
_HIDDEN = r"[\x00-\x1f\x7f-\x{9f}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]"  # see contract.reading.printable
# A column of this type in the contract may have these in a file.
_FITS = {
    "int64": ("a whole number", pa.types.is_integer),
    "string": ("text", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_dictionary(t)),
    "float64": ("a number", lambda t: pa.types.is_floating(t) or pa.types.is_integer(t)),
}
_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Shard:
    """One readable Parquet file of one stage."""

    key: str
    path: Path
    rows: int
    optional: tuple[str, ...] = ()  # columns that it has and need not have


def load_shards(
    connection: duckdb.DuckDBPyConnection, table: str, places: dict[str, Path], states: dict[str, StageState]
) -> None:
    """Insert `<table>.parquet` of each stage that has one; mark stages whose file cannot be read as corrupt.

    Raises:
        TrackerError: the written rows differ from the shards.
        duckdb.Error: the database cannot be written.
    """
    shards = []
    for key, path in _files(f"{table}.parquet", places, states):
        try:
            shards.append(read_shard(key, path, table))
        except _UNREADABLE as error:
            states[key] = _corrupt(states[key], path.name, error)
    for optional in sorted({shard.optional for shard in shards}):  # one statement reads files with the same columns
        alike = [shard for shard in shards if shard.optional == optional]
        for start in range(0, len(alike), _FILES):
            _load(connection, table, alike[start : start + _FILES], states)
    written = dict(connection.execute(f"SELECT key, count(*) FROM {table} GROUP BY key").fetchall())
    expected = {shard.key: shard.rows for shard in shards if shard.rows and states[shard.key].state != "corrupt"}
    if written != expected:
        wrong = sorted(key for key in written.keys() | expected.keys() if written.get(key) != expected.get(key))
        raise TrackerError(f"{table}: rows in the database differ from the shards of the stages {', '.join(wrong[:5])}")
    clustered = [shard.key for shard in shards if "cluster" in shard.optional]
    for key, problem in [*_odd_rows(connection, table), *_odd_clusters(connection, clustered)]:
        states[key] = _corrupt(states[key], f"{table}.parquet", problem)


def load_unfinished(
    connection: duckdb.DuckDBPyConnection, places: dict[str, Path], states: dict[str, StageState]
) -> None:
    """Insert the metrics that running stages have written so far.

    Each file is read at once, since its stage may replace or remove it; an invalid file is left out, as is a row that
    no table can show: when the stage has ended, `load_shards` reports it.
    """
    rows = f"""
        INSERT INTO metrics (key, step, name, value) SELECT ?, step, name, coalesce(value, 'NaN'::DOUBLE) FROM written
        WHERE step IS NOT NULL AND length(name) <= {LONGEST_NAME} AND NOT regexp_matches(name, '{_HIDDEN}')"""
    for key, state in states.items():
        if state.state != "running" or misplaced(places[key]):
            continue
        path = places[key] / "metrics.parquet"
        try:
            read_shard(key, path, "metrics")
            connection.register("written", pq.read_table(path, columns=list(SHARDS["metrics"])))
        except _UNREADABLE:
            continue
        try:
            connection.execute(rows, [key])
        except duckdb.ConversionException:
            continue
        finally:
            connection.unregister("written")


def read_shard(key: str, path: Path, table: str) -> Shard:
    """Return a stage's Parquet file, by its footer; ValueError where a column is missing or of the wrong type."""
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        optional = {name: kind for name, kind in OPTIONAL[table].items() if name in schema.names}
        for name, kind in (SHARDS[table] | optional).items():
            if schema.names.count(name) != 1:
                raise ValueError(f"column {name} is {'there twice' if name in schema.names else 'missing'}")
            words, fits = _FITS[kind]
            if not fits(schema.field(name).type):
                raise ValueError(f"column {name} is {schema.field(name).type}, not {words}")
        return Shard(key, path, file.metadata.num_rows, tuple(optional))


def _files(name: str, places: dict[str, Path], states: dict[str, StageState]) -> Iterable[tuple[str, Path]]:
    """Yield (key, path) of the stages that have ended and left the file `name`."""
    for key, folder in places.items():
        path = folder / name
        if states[key].state not in ("corrupt", *TO_COME) and path.exists():
            yield key, path


def _load(
    connection: duckdb.DuckDBPyConnection, table: str, shards: Sequence[Shard], states: dict[str, StageState]
) -> None:
    """Insert the shards in one statement; where it fails, halve until the broken file is alone and mark its stage."""
    if not shards:
        return
    columns = ", ".join((*SHARDS[table], *shards[0].optional))
    values = columns.replace("value", "coalesce(value, 'NaN'::DOUBLE)")  # pandas writes NaN as null
    keys = {str(shard.path): shard.key for shard in shards}
    query = f"""
        INSERT INTO {table} (key, {columns})
        SELECT map_extract_value(?::MAP(VARCHAR, VARCHAR), filename), {values}
        FROM read_parquet(?, filename = true, union_by_name = false)"""
    connection.execute("BEGIN")
    try:
        connection.execute(query, [keys, list(keys)])
        connection.execute("COMMIT")
    except duckdb.Error as error:
        with suppress(duckdb.Error):  # a commit that failed has rolled back already
            connection.execute("ROLLBACK")
        if len(shards) == 1:
            [shard] = shards
            if _can_be_read(shard, table):
                raise  # the database itself cannot be written: a full disk
            states[shard.key] = _corrupt(states[shard.key], shard.path.name, error)
            return
        middle = len(shards) // 2
        _load(connection, table, shards[:middle], states)
        _load(connection, table, shards[middle:], states)


def _can_be_read(shard: Shard, table: str) -> bool:
    """Whether DuckDB can read every row of a shard, as the types of the table."""
    kinds = SHARDS[table] | {name: OPTIONAL[table][name] for name in shard.optional}
    columns = ", ".join(f"max(hash({name}::{TYPES[kind]}))" for name, kind in kinds.items())
    try:
        with duckdb.connect() as connection:
            connection.execute(f"SELECT {columns} FROM read_parquet(?)", [str(shard.path)]).fetchall()
    except duckdb.Error:
        return False
    return True


def _odd_rows(connection: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    """Return (key, what is wrong) of the stages that left a null, or a name that no table can show."""
    columns = SHARDS[table]
    null = "".join(f" WHEN {name} IS NULL THEN 'column {name} holds a null'" for name in columns)
    problems = f"SELECT key, CASE{null} END AS problem FROM {table}"
    query = f"SELECT key, min(problem) FROM ({problems}) WHERE problem IS NOT NULL GROUP BY key"
    found = connection.execute(query).fetchall()
    for name in (name for name, kind in (columns | OPTIONAL[table]).items() if kind == "string"):
        odd = rf"length({name}) > {LONGEST_NAME} OR regexp_matches({name}, '{_HIDDEN}')"
        found += connection.execute(
            f"""SELECT key, 'column {name} holds a name that is too long or has control characters: ' || min({name})
                FROM (SELECT DISTINCT key, {name} FROM {table}) WHERE {odd} GROUP BY key"""
        ).fetchall()
    return found


def _odd_clusters(connection: duckdb.DuckDBPyConnection, keys: Sequence[str]) -> list[tuple[str, str]]:
    """Return (key, what is wrong) of the stages, all with a column `cluster`, whose items lack one or have two."""
    if not keys:
        return []
    query = """
        SELECT key, CASE WHEN count(cluster) < count(*) THEN 'item ' || item || ' of ' || subset || ' has no cluster'
            ELSE 'item ' || item || ' of ' || subset || ' has the clusters ' || min(cluster) || ' and ' || max(cluster)
            END || ': name one for every row of an item, or leave the column out' AS problem
        FROM items WHERE list_contains(?, key) GROUP BY key, item, subset
        HAVING count(cluster) < count(*) OR min(cluster) <> max(cluster)"""
    rows = connection.execute(f"SELECT key, min(problem) FROM ({query}) GROUP BY key ORDER BY key", [list(keys)])
    return rows.fetchall()


def load_documents(
    connection: duckdb.DuckDBPyConnection, table: str, places: dict[str, Path], states: dict[str, StageState]
) -> None:
    """Insert `<table>.json` of each stage that has one; mark stages with an invalid file as corrupt."""
    rows = []
    for key, path in _files(f"{table}.json", places, states):
        try:
            rows.append((key, *_ROWS[table](read_json(path))))
        except _UNREADABLE as error:
            states[key] = _corrupt(states[key], path.name, error)
    insert(connection, table, rows)


def _provenance_row(document: Any) -> tuple[Any, ...]:
    # As ASCII, lone surrogates would be escapes that DuckDB's JSON refuses; encoded here, they are refused here.
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
    text.encode("utf-8")
    return (text,)


def _weights_row(document: Any) -> tuple[Any, ...]:
    digest, moved = document["digest"], [float(value) for value in document["moved"]]
    if not isinstance(digest, str) or not digest.isalnum():
        raise ValueError(f"digest = {digest!r} is not a digest")
    return digest, moved


_ROWS: dict[str, Callable[[Any], tuple[Any, ...]]] = {"provenance": _provenance_row, "weights": _weights_row}


def drop_corrupt(connection: duckdb.DuckDBPyConnection, states: dict[str, StageState]) -> None:
    """Delete the rows of corrupt stages."""
    corrupt = [key for key, state in states.items() if state.state == "corrupt"]
    for table in (*SHARDS, *DOCUMENTS):
        if corrupt:
            connection.execute(f"DELETE FROM {table} WHERE list_contains(?, key)", [corrupt])


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Append rows through Arrow: executemany takes half a millisecond a row."""
    columns = list(zip(*rows, strict=True))
    if columns:
        connection.register("incoming", pa.table({f"c{i}": pa.array(values) for i, values in enumerate(columns)}))
        connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        connection.unregister("incoming")


def _corrupt(state: StageState, name: str, problem: object) -> StageState:
    return replace(state, state="corrupt", reason=one_line(f"{name}: {problem}", _REASON))
