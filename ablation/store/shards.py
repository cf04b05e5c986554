"""Read the files of stages, and insert their rows; if a file cannot be read, only its stage is left out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ablation.contract.display import one_line
from ablation.contract.reading import MAX_BYTES, read_bytes, read_json
from ablation.contract.rows import LONGEST_NAME, OPTIONAL, SHARDS
from ablation.contract.status import TO_COME, StageState

DOCUMENTS = {"provenance": pa.schema([("data", pa.string())])}
DOCUMENTS["weights"] = pa.schema([("digest", pa.string()), ("moved", pa.list_(pa.float64()))])
TABLES = (*SHARDS, *DOCUMENTS)
_REASON = 500  # characters
_ROWS = 300_000  # in memory before they are inserted
_HIDDEN = r"[\x00-\x1f\x7f-\x{9f}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]"  # see contract.display.printable
# A column of this type in the contract may have these in a file.
_FITS = {
    "int64": ("whole numbers", pa.types.is_integer),
    "string": ("text", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_dictionary(t)),
    "float64": ("numbers", lambda t: pa.types.is_floating(t) or pa.types.is_integer(t)),
}
_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)


def load_stages(
    connection: duckdb.DuckDBPyConnection, places: Mapping[str, Path], states: dict[str, StageState]
) -> None:
    """Insert the rows of all ended stages; a stage with an unreadable file gets the state `corrupt` and no rows."""
    waiting: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
    rows = 0
    for key, folder in places.items():
        if states[key].state in ("corrupt", *TO_COME):
            continue
        shards: dict[str, pa.Table] = {}
        for table in TABLES:
            path = folder / f"{table}.{'parquet' if table in SHARDS else 'json'}"
            try:
                if path.exists():
                    shards[table] = read_shard(path, table) if table in SHARDS else _read_document(path, table)
            except _UNREADABLE as error:
                states[key] = replace(states[key], state="corrupt", reason=one_line(f"{path.name}: {error}", _REASON))
                break
        else:
            for table, read in shards.items():
                waiting[table].append(_with_key(key, read))
                rows += read.num_rows
        if rows > _ROWS:
            _insert_all(connection, waiting)
            rows = 0
    _insert_all(connection, waiting)


def load_unfinished(
    connection: duckdb.DuckDBPyConnection, places: Mapping[str, Path], states: Mapping[str, StageState]
) -> None:
    """Insert the metrics that running stages have written so far.

    A stage may replace or remove its file at any time, so invalid files, and rows without a step or a usable name, are
    left out. `load_stages` reports them when the stage has ended.
    """
    for key, state in states.items():
        if state.state != "running":
            continue
        try:
            rows = _read_columns(places[key] / "metrics.parquet", "metrics")
        except _UNREADABLE:
            continue
        shown = pc.and_(pc.is_valid(rows["step"]), pc.invert(pc.fill_null(_odd(rows["name"]), True)))
        insert_table(connection, "metrics", _with_key(key, rows.filter(shown)))


def read_shard(path: Path, table: str) -> pa.Table:
    """Return the rows of a stage's Parquet file. Raises ValueError for a wrong column, a null or an unusable name."""
    rows = _read_columns(path, table)
    for name in SHARDS[table]:
        if rows[name].null_count:
            raise ValueError(f"column {name} contains a null")
    for name, kind in (SHARDS[table] | OPTIONAL[table]).items():
        if kind == "string" and name in rows.column_names:
            texts = rows[name].unique().drop_null()
            if odd := texts.filter(_odd(texts)).to_pylist():
                what = "contains a text that is too long or has control characters"
                raise ValueError(f"column {name} {what}: {min(odd)}")
    if "cluster" in rows.column_names:
        _check_clusters(rows)
    return rows


def _read_columns(path: Path, table: str) -> pa.Table:
    """Return the columns of a stage's Parquet file in the types of the table.

    Nulls in the column `value` become NaN, because pandas writes NaN as null.
    """
    # A small file at once: Arrow would read its parts in other threads.
    source = pa.BufferReader(read_bytes(path)) if path.stat().st_size < MAX_BYTES else path
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        kinds = SHARDS[table] | {name: kind for name, kind in OPTIONAL[table].items() if name in schema.names}
        for name, kind in kinds.items():
            if schema.names.count(name) != 1:
                raise ValueError(f"column {name} {'occurs twice' if name in schema.names else 'is missing'}")
            expected, fits = _FITS[kind]
            if not fits(schema.field(name).type):
                raise ValueError(f"column {name} must hold {expected}, but its type is {schema.field(name).type}")
        read = file.read(columns=list(kinds), use_threads=False)
    columns = {n: read[n].cast(pa.type_for_alias(kind), safe=kind != "float64") for n, kind in kinds.items()}
    columns["value"] = columns["value"].fill_null(float("nan"))
    rows = pa.table(columns)
    rows.validate(full=True)  # UTF-8, for one
    return rows


def _odd(names: Any) -> Any:
    """Return a mask of the names that are too long for a table or contain control characters."""
    return pc.or_(pc.greater(pc.utf8_length(names), LONGEST_NAME), pc.match_substring_regex(names, _HIDDEN))


def _check_clusters(rows: pa.Table) -> None:
    place = ["subset", "item"]
    pairs = rows.group_by([*place, "cluster"]).aggregate([])
    if not pairs["cluster"].null_count and pairs.num_rows == rows.group_by(place).aggregate([]).num_rows:
        return
    clusters: dict[tuple[str, str], str | None] = {}
    for row in pairs.to_pylist():
        cluster, earlier = row["cluster"], clusters.setdefault((row["subset"], row["item"]), row["cluster"])
        if cluster is None or cluster != earlier:
            names = sorted(name for name in (cluster, earlier) if name is not None)
            problem = "a row without a cluster" if len(names) < 2 else f"the clusters {names[0]} and {names[1]}"
            what = f"item {row['item']} of {row['subset']} has {problem}"
            raise ValueError(f"{what}; name the same cluster in every row of the item, or leave out the column")


def _read_document(path: Path, table: str) -> pa.Table:
    document = read_json(path)
    row: list[Any]
    if table == "provenance":
        # As ASCII, lone surrogates would be escapes that DuckDB's JSON refuses; encoded here, they are refused here.
        text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
        row = [text]
    else:
        digest = document["digest"]
        if not isinstance(digest, str) or not digest.isalnum():
            raise ValueError(f"the digest {digest!r} must consist of letters and digits")
        row = [digest, [float(value) for value in document["moved"]]]
    return pa.table([[value] for value in row], schema=DOCUMENTS[table])


def _with_key(key: str, rows: pa.Table) -> pa.Table:
    return rows.append_column("key", pa.repeat(pa.scalar(key), rows.num_rows))


def _insert_all(connection: duckdb.DuckDBPyConnection, waiting: Mapping[str, list[pa.Table]]) -> None:
    for table, chunks in waiting.items():
        if chunks:
            insert_table(connection, table, pa.concat_tables(chunks, promote_options="default"))
            chunks.clear()


def insert_table(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Append rows to a table, matching columns by name; columns that are missing from the rows become null."""
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Append rows to a table, matching columns by position (by Arrow, which is faster than `executemany`)."""
    columns = list(zip(*rows, strict=True))
    if columns:
        connection.register("incoming", pa.table({f"c{i}": pa.array(values) for i, values in enumerate(columns)}))
        connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        connection.unregister("incoming")
