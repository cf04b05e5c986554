"""Reader of MLflow's tracking stores: a SQLite database (`mlflow.db`) or files (`mlruns/`).

Parameters are the configuration: MLflow keeps them as text, which is converted back to numbers, booleans and lists. A
tag `seed` is the seed. A nested run is a run; its name begins with the names of the runs above it. Deleted runs, and
runs that logged nothing and only hold others, are left out and reported. MLflow's own system metrics are left out
silently.

MLflow gives step 0 to what is logged without a step. A metric that was logged more than once, and always at step 0, is
numbered in the order of logging; of any other metric, a step that was logged twice keeps the value logged last.
"""

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.readers import mlflow_stores as stores
from ablation.readers.mlflow_stores import RawRun
from ablation.readers.run import ImportedRun, Problem, State, iso_time, metric_table, shortened
from ablation.readers.sqlite import is_sqlite, open_database

_REMEDY = "name mlflow.db, mlruns/ or a folder that holds one of them"
_LONGEST = 10_000  # longest parameter that is converted from text; MLflow allows 8,000 characters
_PARENT = "mlflow.parentRunId"
_SYSTEM = "system/"
_SEED_TAGS = ("seed", "random_seed")
_STATES: dict[str, State] = {
    "FINISHED": "finished",
    "FAILED": "failed",
    "KILLED": "failed",
}

_Points = Callable[[RawRun, Problem], Iterable[tuple[int, str, float]]]
"""Returns what a run logged, in the order of logging."""


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a database, of a folder `mlruns`, of one experiment or run in it, or of a folder with both.

    Raises:
        ConfigError: there is no MLflow store, or its database cannot be read.
    """
    databases, folders = _stores(path, problem)
    if not databases and not folders:
        raise ConfigError(path, "", None, "holds no store of MLflow's", _REMEDY)
    for file in databases:
        with open_database(file) as connection:
            runs = stores.database_runs(connection, file, problem)
            yield from _imported(file, runs, partial(stores.database_points, connection), problem)
    for folder in folders:
        runs = list(stores.folder_runs(folder, problem))
        yield from _imported(folder, runs, stores.folder_points, problem)


def _stores(path: Path, problem: Problem) -> tuple[list[Path], list[Path]]:
    """Return the databases and the folders of files that a path means."""
    try:
        if not path.is_dir():
            return ([path] if is_sqlite(path) else []), []
        folders = [folder for folder in (path, path / "mlruns") if stores.is_folder(folder)]
        return [file for file in sorted(path.glob("*.db")) if _is_database(file, problem)], folders
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read: {error}", _REMEDY) from None


def _is_database(file: Path, problem: Problem) -> bool:
    try:
        return is_sqlite(file) and stores.is_database(file)
    except ConfigError as error:
        problem(str(error))
        return False


def _imported(store: Path, runs: Sequence[RawRun], points: _Points, problem: Problem) -> Iterator[ImportedRun]:
    by_key = {run.key: run for run in runs}
    deleted = [f"{run.name} ({run.key})" for run in runs if run.deleted]
    if deleted:
        words = "run that was deleted is" if len(deleted) == 1 else "runs that were deleted are"
        problem(f"{store}: {len(deleted)} {words} left out: {shortened(deleted)}")
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
            name=" / ".join([*_above(run, by_key), run.name]),
            config=config,
            seed=_seed(run.tags),
            state=_STATES.get(run.status, "running"),
            started=iso_time(None if run.started is None else run.started / 1000),
            metrics=metric_table(_numbered(logged)),
        )
    if empty:
        problem(f"{store}: left out, as they logged nothing and only hold nested runs: {shortened(empty)}")


def _above(run: RawRun, by_key: Mapping[str, RawRun]) -> list[str]:
    """Return the names of the runs around a nested run, the outermost first; the id of one that is missing."""
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
    """Return the seed in a tag. A seed that is a parameter is part of the configuration."""
    texts = (tags.get(name, "") for name in _SEED_TAGS)
    return next((int(text) for text in texts if re.fullmatch(r"[0-9]{1,18}", text)), None)


def _numbered(logged: Sequence[tuple[int, str, float]]) -> Iterator[tuple[int, str, float]]:
    with_step = {name for step, name, _ in logged if step != 0}
    count: dict[str, int] = {}
    for step, name, value in logged:
        count[name] = count.get(name, -1) + 1
        yield (step if name in with_step else count[name]), name, value


def typed(text: str) -> Any:
    """Return the number, boolean, list or map that a parameter's text stands for; else the text."""
    if len(text) > _LONGEST:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if _is_plain(value) else text


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
