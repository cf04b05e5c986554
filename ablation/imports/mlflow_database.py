"""MLflow's tracking store in SQLite."""

import math
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line
from ablation.imports.mlflow_raw import RawRun
from ablation.imports.run import Problem
from ablation.imports.sqlite import columns, open_database, rows

_TABLES = ("experiments", "runs", "params", "tags", "metrics")
_LARGEST = 1.7976931348623157e308  # what the database holds for infinity


def is_store(file: Path) -> bool:
    """Whether a SQLite file is MLflow's."""
    with open_database(file) as connection:
        return not _missing(connection)


def _missing(connection: Connection) -> list[str]:
    return [table for table in _TABLES if not columns(connection, table)]


def raw_runs(connection: Connection, file: Path, problem: Problem) -> list[RawRun]:
    """Return all runs, deleted ones too, in the order of their start.

    Raises:
        ConfigError: the database is not MLflow's.
    """
    for table in _missing(connection)[:1]:
        remedy = "name mlflow.db, mlruns/ or a folder that holds one of them"
        raise ConfigError(file, "", None, f"is no database of MLflow's: it has no table {table}", remedy)
    query = """
        SELECT run_uuid, runs.name, status, start_time, runs.lifecycle_stage, experiments.lifecycle_stage
        FROM runs LEFT JOIN experiments USING (experiment_id) ORDER BY start_time, run_uuid"""
    found: list[RawRun] = []
    seen: set[str] = set()
    for key, name, status, started, stage, experiment in list(rows(connection, query, [], str(file), problem)):
        if not isinstance(key, str) or key in seen:
            continue  # of a damaged page
        seen.add(key)
        texts: dict[str, dict[str, str]] = {}
        for table in ("params", "tags"):
            select = f"SELECT key, value FROM {table} WHERE run_uuid = ? ORDER BY key"
            where = f"{file}: {table} of run {one_line(name or key, 80)}"
            texts[table] = {
                str(word): "" if text is None else str(text)
                for word, text in rows(connection, select, [key], where, problem)
            }
        found.append(
            RawRun(
                place=file,
                key=key,
                name=str(name or texts["tags"].get("mlflow.runName") or key),
                status=str(status or ""),
                started=started if isinstance(started, int) else None,
                deleted="deleted" in (stage, experiment),
                params=texts["params"],
                tags=texts["tags"],
            )
        )
    return found


def points(connection: Connection, run: RawRun, problem: Problem) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) of a run in the order of logging.

    NaN has a flag, because its value is 0 there; infinities are the largest numbers that there are.
    """
    query = "SELECT step, key, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, rowid"
    where = f"{run.place}: metrics of run {one_line(run.name, 80)}"
    for step, name, value, is_nan in rows(connection, query, [run.key], where, problem):
        if not isinstance(step, int) or not isinstance(name, str):
            continue  # of a damaged page
        if is_nan:
            yield step, name, math.nan
        elif isinstance(value, int | float):
            yield step, name, math.copysign(math.inf, value) if abs(value) >= _LARGEST else float(value)
