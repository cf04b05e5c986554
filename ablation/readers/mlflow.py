"""Reader of MLflow's tracking stores: a SQLite database (`mlflow.db`) or files (`mlruns/<experiment>/<run>/`).

Parameters are the configuration: MLflow keeps them as text, which is converted back to numbers, booleans and lists. A
tag `seed` or `random_seed` is the seed. A nested run is imported like any other; its name begins with the names of the
runs above it. Deleted runs, and runs that logged nothing and only hold other runs, are left out and reported. MLflow's
own system metrics are left out without a report.

MLflow gives step 0 to what is logged without a step. The values of a metric that was only logged at step 0 therefore
get the steps 0, 1, 2, ... in the order of logging. Any other metric keeps the value that was logged last at each step.
"""

import ast
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from ablation.config.yaml_io import parse_foreign
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_text, regular
from ablation.readers.run import ImportedRun, Problem, State, iso_time, metric_table, shortened
from ablation.readers.sqlite import columns, is_sqlite, open_database, rows
from ablation.readers.walk import files_of, is_aside

_REMEDY = "name mlflow.db, mlruns/ or a folder that holds one of them"
_LONGEST = 10_000  # longest parameter that is converted from text; MLflow allows 8,000 characters
_PARENT = "mlflow.parentRunId"
_SYSTEM = "system/"
_SEED_TAGS = ("seed", "random_seed")
_STATES: dict[str, State] = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "failed"}
_META = "meta.yaml"
_TRASH = ".trash"  # deleted experiments
_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_NO_RUNS = ("tags", "datasets", "traces", "models")  # folders next to the runs of an experiment
_MAX_BYTES = 1 << 20  # of a file that holds one text
_TABLES = ("experiments", "runs", "params", "tags", "metrics")
_LARGEST = 1.7976931348623157e308  # what the database holds for infinity


@dataclass(frozen=True)
class RawRun:
    """A run of MLflow, from a database or from files."""

    place: Path  # the database, or the folder of the run
    key: str  # MLflow's id of the run
    name: str
    status: str  # MLflow's word, such as `FINISHED`; "" if it cannot be read
    started: int | None  # milliseconds since the epoch
    deleted: bool
    params: Mapping[str, str]  # as text, as MLflow keeps them
    tags: Mapping[str, str]


_Points = Callable[[RawRun, Problem], Iterable[tuple[int, str, float]]]
"""Function that yields (step, name, value) of a run in the order of logging, and reports damage."""


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a database, a folder `mlruns`, an experiment or run in it, or all stores below a folder.

    The name of a run begins with the subfolder of its store. Raises ConfigError if there is no MLflow store, or if
    `path` is a database that cannot be read.
    """
    try:
        files = files_of("mlflow", path, problem)
        databases = [file for file in files if file.name != _META and is_sqlite(file)]
        folders = _run_folders(path, [file for file in files if file.name == _META])
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error})", _REMEDY) from None
    has_store = bool(folders)
    for file in databases:
        try:
            with open_database(file) as connection:
                missing = next((table for table in _TABLES if not columns(connection, table)), None)
                if missing is not None:
                    what = f"is not an MLflow database, because it has no table {missing}"
                    raise ConfigError(file, "", None, what, _REMEDY)
                has_store = True
                runs, within = database_runs(connection, file, problem), _within(path, file.parent)
                yield from _imported(file, runs, partial(database_points, connection), problem, within)
        except ConfigError as error:
            if not path.is_dir():
                raise
            problem(str(error))
    stores: dict[Path, list[Path]] = {}
    for folder in folders:
        store = folder.parent.parent.parent if _TRASH in folder.parts[-3:] else folder.parent.parent
        stores.setdefault(store, []).append(folder)
    for store, run_folders in stores.items():
        place = store if store.is_relative_to(path) else path
        yield from _imported(place, folder_runs(run_folders, problem), folder_points, problem, _within(path, store))
    if not has_store:
        raise ConfigError(path, "", None, "holds no MLflow store", _REMEDY)


def _within(path: Path, store: Path) -> str:
    """Return the path from `path` to a store, without `mlruns`, as a prefix for names of runs: `a/b/` or ""."""
    parts = store.relative_to(path).parts if store.is_relative_to(path) else ()
    return "".join(f"{part}/" for part in (parts[:-1] if parts[-1:] == ("mlruns",) else parts))


def _imported(
    store: Path, runs: Sequence[RawRun], points: _Points, problem: Problem, within: str
) -> Iterator[ImportedRun]:
    by_key = {run.key: run for run in runs}
    deleted = [f"{run.name} ({run.key})" for run in runs if run.deleted]
    if deleted:
        problem(f"{store}: deleted runs are left out ({len(deleted)}): {shortened(deleted)}")
    holders = {run.tags.get(_PARENT) for run in runs}
    empty = []
    for run in runs:
        if run.deleted:
            continue
        config = {name: typed(text) for name, text in run.params.items()}
        damage: list[str] = []
        logged = [row for row in points(run, damage.append) if not row[1].startswith(_SYSTEM)]
        for line in damage:
            problem(line)
        if not logged and not damage and run.key in holders:
            empty.append(f"{run.name} ({run.key})")
            continue
        yield ImportedRun(
            source=run.place,
            id=run.key,
            name=within + " / ".join([*_above(run, by_key), run.name]),
            config=config,
            seed=_seed(run.tags),
            state=_STATES.get(run.status, "running"),
            started=iso_time(None if run.started is None else run.started / 1000),
            metrics=metric_table(_numbered(logged)),
        )
    if empty:
        problem(f"{store}: runs that hold only nested runs are left out: {shortened(empty)}")


def _above(run: RawRun, by_key: Mapping[str, RawRun]) -> list[str]:
    """Return the names of the runs above a nested run, the outermost first; a missing run is named by its id."""
    names: list[str] = []
    seen = {run.key}
    key = run.tags.get(_PARENT)
    while key and key not in seen:
        seen.add(key)
        parent = by_key.get(key)
        names.insert(0, parent.name if parent else key)
        key = parent.tags.get(_PARENT) if parent else None
    return names


def _seed(tags: Mapping[str, str]) -> int | None:
    """Return the seed that a tag states, else None; a seed that is a parameter is part of the configuration instead."""
    texts = (tags.get(name, "") for name in _SEED_TAGS)
    return next((int(text) for text in texts if re.fullmatch(r"[0-9]{1,18}", text)), None)


def _numbered(logged: Sequence[tuple[int, str, float]]) -> Iterator[tuple[int, str, float]]:
    with_step = {name for step, name, _ in logged if step != 0}
    count: dict[str, int] = {}
    for step, name, value in logged:
        count[name] = count.get(name, -1) + 1
        yield (step if name in with_step else count[name]), name, value


def typed(text: str) -> Any:
    """Return a parameter's text as the number, boolean, list or map that it spells; return any other text unchanged."""
    if len(text) > _LONGEST:
        return text
    try:
        value = ast.literal_eval(text)
        return value if json.loads(json.dumps(value, allow_nan=False)) == value else text
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _run_folders(path: Path, metas: Sequence[Path]) -> list[Path]:
    """Return the folders of runs: those with `meta.yaml`, those beside such a folder, and those in `.trash`."""
    run_folders = {folder for folder in (path, *(meta.parent for meta in metas)) if _is_run(folder)}
    for experiment in [place for place in {folder.parent for folder in run_folders} if place.is_relative_to(path)]:
        run_folders |= {place.parent for place in experiment.glob("*/metrics") if _is_run(place.parent)}
        if experiment != path:
            run_folders |= {place.parent for place in experiment.parent.glob(f"{_TRASH}/*/*/metrics")}
    return sorted(run_folders)


def _is_run(folder: Path) -> bool:
    names = folder.name, folder.parent.name
    return not any(name in _NO_RUNS or is_aside(name) for name in names) and all(
        (folder / part).is_dir() for part in ("metrics", "params")
    )


def folder_runs(folders: Sequence[Path], problem: Problem) -> list[RawRun]:
    """Return the runs in these folders, experiment by experiment, in the order in which they started."""
    experiments = {folder.parent: _TRASH in folder.parts[-3:] for folder in folders}
    for experiment in experiments:
        meta = _meta(experiment / _META, lambda _: None)
        experiments[experiment] |= meta.get("lifecycle_stage") == "deleted"
    runs = [_raw_run(folder, problem, deleted=experiments[folder.parent]) for folder in folders]
    return sorted(runs, key=lambda run: (_TRASH in run.place.parts, run.place.parent, run.started or 0, run.key))


def _raw_run(folder: Path, problem: Problem, *, deleted: bool) -> RawRun:
    meta = _meta(folder / _META, problem)
    tags = _texts(folder / "tags", problem)
    started, status = meta.get("start_time"), meta.get("status")
    return RawRun(
        place=folder,
        key=folder.name,
        name=str(meta.get("run_name") or tags.get("mlflow.runName") or folder.name),
        status=_STATUS.get(status, "") if isinstance(status, int) else str(status or ""),
        started=started if isinstance(started, int) else None,
        deleted=deleted or meta.get("lifecycle_stage") == "deleted",
        params=_texts(folder / "params", problem),
        tags=tags,
    )


def _meta(file: Path, problem: Problem) -> dict[str, Any]:
    try:
        meta = parse_foreign(read_text(file, _MAX_BYTES))
        if not isinstance(meta, dict):
            raise ValueError("the file does not hold a mapping")
        return meta
    except FileNotFoundError:
        problem(f"{file}: is missing, so the start time and the state of the run are unknown")
    except (OSError, ValueError) as error:
        why = one_line(error, 200)
        problem(f"{file}: cannot be read ({why}), so the start time and the state of the run are unknown")
    return {}


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) for each file below a folder; the name is its path in the folder."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in files if not name.startswith(".")):  # `._loss`; no metric begins so
            path = Path(place, name)
            yield path.relative_to(folder).as_posix(), path


def _texts(folder: Path, problem: Problem) -> dict[str, str]:
    texts = {}
    for name, file in _files(folder):
        try:
            texts[name] = read_text(file, _MAX_BYTES)
        except (OSError, ValueError) as error:
            problem(f"{file}: cannot be read ({one_line(error, 200)}), so it is left out")
    return texts


def folder_points(run: RawRun, problem: Problem) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) of a run's folder, metric by metric, in the order of logging."""
    for name, file in _files(run.place / "metrics"):
        try:
            yield from _lines(name, regular(file), problem)
        except OSError as error:
            problem(f"{file}: cannot be read ({one_line(error, 200)}), so it is left out")


def _lines(name: str, file: Path, problem: Problem) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) of the lines `time value [step [dataset digest]]` in the file of a metric.

    A line without a line break is not read, because its number may have been cut off.
    """
    damaged = first = 0
    with file.open("rb") as lines:
        for number, line in enumerate(iter(partial(lines.readline, 1 << 24), b""), start=1):
            fields = line.split(b" ")
            try:
                if not line.endswith(b"\n") or len(fields) not in (2, 3, 5) or b"_" in b"".join(fields[:3]):
                    raise ValueError
                int(fields[0])
                step, value = int(fields[2]) if len(fields) > 2 else 0, float(fields[1])
                if abs(step) >= 2**63:
                    raise ValueError
            except ValueError:
                damaged, first = damaged + 1, first or number
                continue
            yield step, name, value
    if damaged:
        problem(f"{file}: damaged lines are left out ({damaged}; the first is line {first})")


def database_runs(connection: Connection, file: Path, problem: Problem) -> list[RawRun]:
    """Return all runs of a database, including deleted ones, in the order in which they started."""
    query = """
        SELECT run_uuid, runs.name, status, start_time, runs.lifecycle_stage, experiments.lifecycle_stage
        FROM runs LEFT JOIN experiments USING (experiment_id) ORDER BY start_time, run_uuid"""
    runs: list[RawRun] = []
    seen: set[str] = set()
    for key, name, status, started, stage, experiment in list(rows(connection, query, [], str(file), problem)):
        if not isinstance(key, str) or key in seen:
            continue  # of a damaged page
        seen.add(key)
        texts = []
        for table in ("params", "tags"):
            select = f"SELECT key, value FROM {table} WHERE run_uuid = ? ORDER BY key"
            where = f"{file}: {table} of run {one_line(name or key, 80)}"
            pairs = rows(connection, select, [key], where, problem)
            texts.append({str(word): "" if text is None else str(text) for word, text in pairs})
        params, tags = texts
        runs.append(
            RawRun(
                place=file,
                key=key,
                name=str(name or tags.get("mlflow.runName") or key),
                status=str(status or ""),
                started=started if isinstance(started, int) else None,
                deleted="deleted" in (stage, experiment),
                params=params,
                tags=tags,
            )
        )
    return runs


def database_points(connection: Connection, run: RawRun, problem: Problem) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) of a run in a database, in the order of logging.

    MLflow stores NaN as 0 with a flag, and infinities as the largest finite numbers; both are converted back.
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
