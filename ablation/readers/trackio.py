"""Reader of trackio's projects, each of which is an SQLite file with metrics and configurations as JSON.

The configuration and the metrics that are numbers are read. System metrics, which have no steps, are left out, as are
tables, histograms, images and traces.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers.run import ImportedRun, Problem, as_written, metric_table, name_below, shortened
from ablation.readers.sqlite import columns, is_sqlite, open_database, rows
from ablation.readers.walk import files_of

_REMEDY = "name a project's .db file, or a folder of such files"


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a project's file, or of all projects below a folder (`TRACKIO_DIR`), sorted by start time.

    The name of a run begins with the subfolder of its project. A step that was logged twice, for example after a
    resume, keeps the value that was logged last. trackio does not record whether a run has ended, so every run is
    `finished`. A resumed run has the configuration of its last start, which replaces earlier ones.

    Raises ConfigError if there is no trackio project that can be read.
    """
    has_project = False
    for file in files_of("trackio", path, problem):
        try:
            for run in _read_file(file, problem):
                inner = file.parent != path and path.is_dir()
                yield replace(run, name=f"{name_below(path, file.parent)}/{run.name}") if inner else run
            has_project = True
        except ConfigError as error:
            if file == path:
                raise
            problem(str(error))
    if not has_project:
        raise ConfigError(path, "", None, "holds no trackio project", _REMEDY)


def _read_file(file: Path, problem: Problem) -> Iterator[ImportedRun]:
    try:
        if not is_sqlite(file):
            raise ConfigError(file, "", None, "is not an SQLite file", _REMEDY)
    except OSError as error:
        raise ConfigError(file, "", None, f"cannot be read ({error})", _REMEDY) from None
    with open_database(file) as connection:
        if not columns(connection, "metrics") >= {"run_name", "step", "metrics", "timestamp"}:
            raise ConfigError(file, "", None, "is not a trackio project", _REMEDY)
        # Before trackio 0.24 a run was known by its name alone.
        key = "run_id" if "run_id" in columns(connection, "metrics") else "run_name"
        query = f"SELECT {key}, max(run_name), min(timestamp) FROM metrics GROUP BY {key} ORDER BY 3, 1"
        seen = set()
        for run, name, started in list(rows(connection, query, [], str(file), problem)):
            if isinstance(run, str) and isinstance(name, str) and run not in seen:  # otherwise from a damaged page
                seen.add(run)
                yield _read_run(connection, file, (key, run), problem, name=name, started=started)


def _read_run(
    connection: Connection, file: Path, identity: tuple[str, str], problem: Problem, *, name: str, started: str
) -> ImportedRun:
    key, run = identity
    where = f"{file}: run {one_line(name, 80)}"
    config = _read_config(connection, identity, where, problem)
    query = f"SELECT id, step, metrics FROM metrics WHERE {key} = ? ORDER BY timestamp, id"
    logged = _points(rows(connection, query, [run], where, problem), where, problem)
    return ImportedRun(
        source=file,
        id=run if key == "run_id" else f"{file.stem}/{run}",
        name=name,
        config=config,
        started=started,
        metrics=metric_table(logged),
    )


def _read_config(connection: Connection, identity: tuple[str, str], where: str, problem: Problem) -> dict[str, Any]:
    key, run = identity
    if key not in columns(connection, "configs"):
        return {}
    query = f"SELECT config FROM configs WHERE {key} = ? ORDER BY id DESC LIMIT 1"
    for (text,) in rows(connection, query, [run], where, problem):
        try:
            config = json.loads(text)
            return {name: value for name, value in config.items() if not name.startswith("_")}  # not _Created
        except (ValueError, AttributeError, RecursionError) as error:
            problem(f"{where}: the configuration is not a JSON object ({one_line(error, 100)}), so it is left out")
    return {}


def _points(logged: Iterator[tuple[Any, ...]], where: str, problem: Problem) -> Iterator[tuple[int, str, float]]:
    damaged, first, others = 0, 0, set[str]()
    for row, step, text in logged:
        try:
            values = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            values = None
        if not isinstance(values, dict) or not isinstance(step, int):
            damaged, first = damaged + 1, first or row
            continue
        for name, value in values.items():
            number = as_written(value)
            if number is not None:
                yield step, name, number
            elif value is not None:
                others.add(name)
    if damaged:
        problem(f"{where}: rows without a JSON object or a step are left out ({damaged}; the first has id {first})")
    if others:
        problem(f"{where}: values that are not numbers are left out: {shortened(sorted(others))}")
