"""plan.json and the stage folders become one DuckDB file, complete or not at all."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from contract.atomic import replacing
from contract.errors import TrackerError
from contract.stage_folder import DATABASE, StageState, read_state
from tracker.config.published_schema import PublishedFile
from tracker.plan.plan_file import PLAN_FILE, PlanFile, PlannedVariant, digest_of_plan, read_plan
from tracker.plan.retry import note_collected
from tracker.store.analysis_history import record_analysis
from tracker.store.database import SCHEMA, SCHEMA_VERSION
from tracker.store.health_events import find_events
from tracker.store.stored_study import StoredStudy

# What a shard must hold: its columns, as an Arrow type test each.
SHARDS = {
    "metrics": {"step": "integer", "name": "string", "value": "number"},
    "items": {"item": "string", "subset": "string", "protocol": "string", "name": "string", "value": "number"},
}
IS_TYPE = {
    "integer": pa.types.is_integer,
    "string": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_dictionary(t),
    "number": lambda t: pa.types.is_floating(t) or pa.types.is_integer(t),
}


@dataclass
class Collected:
    """What a collect did: the file, rows by table, and stages by state."""

    database: Path
    rows: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Shard:
    """One readable Parquet file of one stage."""

    key: str
    path: Path
    rows: int


def collect(results: Path) -> Collected:
    """Build `results/tracker.duckdb` from `results/plan.json` and the stage folders.

    The file is built aside, checkpointed, closed, synced and renamed, so that readers see the old or the new one. A
    stage with an unreadable file becomes `corrupt`, with the reason, and contributes no rows; all others stay.

    Raises:
        ConfigError: there is no plan, or it cannot be read.
        TrackerError: the rows written are not those of the shards, or the disk is full; the old database stays.
    """
    with _alone(results):
        return _collect(results)


@contextmanager
def _alone(results: Path) -> Iterator[None]:
    """Wait for another collect of the same results: the one that looked last must also be the one that writes last."""
    try:
        handle = os.open(results / ".collect.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        yield  # no results: there is no plan either, and that is said
        return
    except OSError as error:
        raise TrackerError(f"{results}: cannot be written ({error.strerror}); mend the folder") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _collect(results: Path) -> Collected:
    database, plan = results / DATABASE, read_plan(results / PLAN_FILE)
    places = plan.folders(results)
    read = {key: read_state(folder, key) for key, folder in places.items()}
    states = dict(read)
    studies = _with_history(results, plan, states)
    with replacing(database) as aside:
        try:
            with duckdb.connect(str(aside)) as connection:
                connection.execute(SCHEMA)
                _write_plan(connection, plan, studies)
                for table in SHARDS:
                    _write_shards(connection, table, places, states)
                for table, row in (("provenance", _provenance_row), ("weights", _weights_row)):
                    _write_documents(connection, table, row, places, states)
                _drop_corrupt(connection, states)
                _insert(connection, "health", find_events(connection, plan))
                _write_stages(connection, plan, places, states)
                collected = _summary(connection, database)
                connection.execute("CHECKPOINT")
        except (duckdb.IOException, duckdb.FatalException) as error:  # a full disk, then or at the checkpoint
            raise OSError(" ".join(str(error).split())) from error
        finally:
            with suppress(OSError):
                aside.with_name(f"{aside.name}.wal").unlink(missing_ok=True)
    note_collected(results, states, read)
    return collected


def _with_history(results: Path, plan: PlanFile, states: dict[str, StageState]) -> list[StoredStudy]:
    """Return the studies with the history of their analysis plans since they had results."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    stored = []
    for study in plan.studies:
        last = {run.stages[study.last_stage] for run in study.runs}
        finished = any(key in states and states[key].state == "ok" for key in last)
        analysis = study.analysis.model_dump(mode="json")
        history = record_analysis(results, study.name, study.analysis_digest, analysis, has_results=finished, now=now)
        stored.append(StoredStudy(**study.as_recorded(), analysis_history=history))
    return stored


def _write_plan(connection: duckdb.DuckDBPyConnection, plan: PlanFile, studies: Sequence[StoredStudy]) -> None:
    now, digest = datetime.now(UTC).isoformat(timespec="seconds"), digest_of_plan(plan.text())
    meta = {"scale": plan.scale, "created": now, "plan digest": digest, "schema version": SCHEMA_VERSION}
    _insert(connection, "meta", meta.items())
    for study, planned in zip(studies, plan.studies, strict=True):
        name = study.name
        _insert(connection, "studies", [(name, study.title, study.question, study.source, study.model_dump_json())])
        _insert(connection, "variants", (_variant(name, i, entry) for i, entry in enumerate(planned.variants)))
        rows = [
            (name, run.variant, run.seed, stage, position, key)
            for run in planned.runs
            for position, (stage, key) in enumerate(run.stages.items())
        ]
        _insert(connection, "run_stages", rows)
        _insert(connection, "published", _published(name, study.published))


def _variant(study: str, position: int, entry: PlannedVariant) -> tuple[Any, ...]:
    changes = [change.model_dump(by_alias=True) for change in entry.changes]
    documents = (json.dumps(value) for value in (entry.resolved, entry.factors, changes))
    return (study, entry.name, entry.parent, position, entry.why, entry.file, *documents)


def _published(study: str, published: PublishedFile | None) -> Iterable[tuple[Any, ...]]:
    if published is None:
        return
    for variant, values in published.rows.items():
        for column, value in zip(published.columns, values, strict=True):
            if value is not None:
                yield study, variant, column, value, published.source


def _write_shards(
    connection: duckdb.DuckDBPyConnection, table: str, places: dict[str, Path], states: dict[str, StageState]
) -> None:
    shards = []
    for key, folder in places.items():
        path = folder / f"{table}.parquet"
        if states[key].state in ("corrupt", "missing", "running") or not path.exists():
            continue
        try:
            shards.append(Shard(key, path, _count_rows(path, SHARDS[table])))
        except (pa.ArrowException, OSError, ValueError) as error:
            states[key] = _corrupt(states[key], path, error)
    _load(connection, table, shards, states)
    written = dict(connection.execute(f"SELECT key, count(*) FROM {table} GROUP BY key").fetchall())
    expected = {shard.key: shard.rows for shard in shards if shard.rows and states[shard.key].state != "corrupt"}
    if written != expected:
        wrong = sorted(key for key in written.keys() | expected.keys() if written.get(key) != expected.get(key))
        raise TrackerError(f"{table}: rows in the database differ from the shards of the stages {', '.join(wrong[:5])}")


def _count_rows(path: Path, columns: dict[str, str]) -> int:
    """Rows of a Parquet file, by its footer; ValueError where a column is missing or of the wrong type."""
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        for name, kind in columns.items():
            if name not in schema.names:
                raise ValueError(f"column {name} is missing")
            if not IS_TYPE[kind](schema.field(name).type):
                raise ValueError(f"column {name} is {schema.field(name).type}, not {kind}")
        return file.metadata.num_rows


def _load(
    connection: duckdb.DuckDBPyConnection, table: str, shards: Sequence[Shard], states: dict[str, StageState]
) -> None:
    """Insert the shards in one statement; where it fails, halve until the broken file is alone and mark its stage."""
    if not shards:
        return
    columns = ", ".join(SHARDS[table])
    keys = {str(shard.path): shard.key for shard in shards}
    query = f"""
        INSERT INTO {table} (key, {columns})
        SELECT map_extract_value(?::MAP(VARCHAR, VARCHAR), filename), {columns}
        FROM read_parquet(?, filename = true, union_by_name = false)"""
    connection.execute("BEGIN")
    try:
        connection.execute(query, [keys, list(keys)])
        connection.execute("COMMIT")
    except duckdb.Error as error:
        connection.execute("ROLLBACK")
        if len(shards) == 1:
            [shard] = shards
            states[shard.key] = _corrupt(states[shard.key], shard.path, error)
            return
        middle = len(shards) // 2
        _load(connection, table, shards[:middle], states)
        _load(connection, table, shards[middle:], states)


def _write_documents(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    row: Callable[[Any], tuple[Any, ...]],
    places: dict[str, Path],
    states: dict[str, StageState],
) -> None:
    """Insert `<table>.json` of each stage that has one."""
    rows = []
    for key, folder in places.items():
        path = folder / f"{table}.json"
        if states[key].state in ("corrupt", "missing", "running") or not path.exists():
            continue
        try:
            rows.append((key, *row(json.loads(path.read_text(encoding="utf-8")))))
        except (ValueError, TypeError, KeyError, OSError) as error:
            states[key] = _corrupt(states[key], path, error)
    _insert(connection, table, rows)


def _provenance_row(document: Any) -> tuple[Any, ...]:
    return (json.dumps(document, sort_keys=True),)


def _weights_row(document: Any) -> tuple[Any, ...]:
    return str(document["digest"]), [float(value) for value in document["moved"]]


def _drop_corrupt(connection: duckdb.DuckDBPyConnection, states: dict[str, StageState]) -> None:
    corrupt = [key for key, state in states.items() if state.state == "corrupt"]
    for table in (*SHARDS, "provenance", "weights"):
        if corrupt:
            connection.execute(f"DELETE FROM {table} WHERE list_contains(?, key)", [corrupt])


def _write_stages(
    connection: duckdb.DuckDBPyConnection, plan: PlanFile, places: dict[str, Path], states: dict[str, StageState]
) -> None:
    keys = {stage.dir: stage.key for stage in plan.stages}
    rows = []
    for stage in plan.stages:
        state = states[stage.key]
        inputs = json.dumps({name: keys.get(folder, str(folder)) for name, folder in stage.inputs.items()})
        known = (state.state, state.reason, state.started, state.ended, state.wall_s, state.attempt, state.device)
        head = (stage.key, stage.study, stage.stage, stage.seed, stage.label)
        rows.append((*head, *known, str(stage.dir), inputs))
    _insert(connection, "stages", rows)


def _summary(connection: duckdb.DuckDBPyConnection, database: Path) -> Collected:
    collected = Collected(database)
    for table in ("metrics", "items", "health"):
        [count] = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
        collected.rows[table] = count
    counts = connection.execute("SELECT state, count(*) FROM stages GROUP BY state ORDER BY state")
    collected.states = dict(counts.fetchall())
    return collected


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Append rows through Arrow: executemany takes half a millisecond a row."""
    columns = list(zip(*rows, strict=True))
    if columns:
        connection.register("incoming", pa.table({f"c{i}": pa.array(values) for i, values in enumerate(columns)}))
        connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        connection.unregister("incoming")


def _corrupt(state: StageState, path: Path, error: Exception) -> StageState:
    return replace(state, state="corrupt", reason=f"{path.name}: {' '.join(str(error).split())}")
