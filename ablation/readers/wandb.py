"""Reader of Weights & Biases: offline runs (`wandb/offline-run-*/run-*.wandb`) and exported CSV files.

A resumed run has several files, which are read as one run. When W&B resumes a run offline, it does not know the last
step and counts from 0 again; these steps are put after those of the earlier files. Otherwise, a file that starts at a
step that earlier files had passed replaces what they logged from that step on. The step of a metric is the value of the
step metric that `define_metric` gave it, if that is whole, else W&B's own step. If a run has ended, a metric that only
its summary has is at the last step. System metrics, W&B's own `_runtime` and `_timestamp`, tables, histograms, media
and text are left out.
"""

import json
import math
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.reading import regular
from ablation.readers.run import ImportedRun, Problem, State, as_number, as_written, iso_time, metric_table, shortened
from ablation.readers.walk import files_of
from ablation.readers.wandb_csv import read_csv, read_csvs
from ablation.readers.wandb_log import HEADER, OWN, is_wandb, parse, read_records, text

_REMEDY = "name a run-*.wandb file, a folder that holds some, a CSV file exported by W&B, or a folder of such files"

_TYPE = "_type"  # key of a map that describes a table, a histogram or media

_Path = tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """The run that a file belongs to.

    `started` is in seconds since the epoch, or 0 if the file does not state the start.
    """

    file: Path
    project: str
    run: str
    started: float


def read_head(file: Path) -> Head:
    """Return the run that a file belongs to, from its first records or, if they are damaged, its name.

    Raises OSError if the file cannot be read.
    """
    for record in islice(read_records(file, lambda _: None), 100):
        with suppress(ValueError):
            run = parse(record).run
            if run.run_id:
                started = float(run.start_time.seconds) + run.start_time.nanos / 1e9
                return Head(file, text(run.project), text(run.run_id), started)
    return Head(file, "", file.stem.removeprefix("run-"), 0.0)


class Run:
    """The content of a run's files, which `add` reads one after the other.

    Attributes:
        name: "" if the run has no name.
        state: the state at the end of the last file.
        config: the configuration with all changes made during the run.
    """

    def __init__(self, problem: Problem) -> None:
        self.name = ""
        self.state: State = "running"
        self.config: dict[str, Any] = {}
        self._problem = problem
        self._files: list[Path] = []
        self._codes: dict[str, int] = {}
        self._step_metrics: dict[str, str] = {}
        self._globs: dict[str, str] = {}
        self._summary: dict[_Path, Any] = {}
        self._others: dict[str, None] = {}
        # A row per number: place of its file, code of its name, W&B's step, the value of its step metric, its value.
        self._rows = array("i"), array("i"), array("q"), array("d"), array("d")
        self._step = -1
        self._resumes = False
        self._before: int | None = None  # what is added to W&B's steps of this file; None: not known yet

    def add(self, file: Path) -> None:
        """Read one more file.

        Raises OSError if the file cannot be read to its end; what was read before the error is kept.
        """
        self.state, self._step, self._resumes = "running", -1, False
        self._before = None if self._files else 0
        self._files.append(file)
        damaged = 0
        for record in read_records(file, self._problem):
            try:
                self._read(parse(record))
            except (ValueError, RecursionError):
                damaged += 1
        if damaged:
            self._problem(f"{file}: damaged records are left out ({damaged})")

    def _read(self, record: Any) -> None:
        self.name = text(record.run.display_name) or self.name
        self._resumes |= record.run.resume
        for part in (record, record.run):
            self._read_config(part.config)
            self._read_summary(part.summary)
        if record.HasField("history"):
            self._read_history(record.history)
        metric = record.metric
        if metric.step_metric and metric.name:
            self._step_metrics[text(metric.name)] = text(metric.step_metric)
        elif metric.step_metric and metric.glob_name:
            self._globs[text(metric.glob_name).removesuffix("*")] = text(metric.step_metric)
        if record.HasField("exit") and not record.exit.not_complete:
            self.state = "failed" if record.exit.exit_code else "finished"

    def _read_config(self, changes: Any) -> None:
        for path, content in map(_item, changes.update):
            if not path[0].startswith("_"):  # W&B's own: _wandb
                self._place(path)[path[-1]] = json.loads(content, parse_constant=str)
        for path, _ in map(_item, changes.remove):
            self._place(path).pop(path[-1], None)

    def _place(self, path: _Path) -> dict[str, Any]:
        """Return the map in the configuration that holds the last key of a path; create the map if needed."""
        place = self.config
        for key in path[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        return place

    def _read_summary(self, changes: Any) -> None:
        self._summary |= map(_item, changes.update)
        for path, _ in map(_item, changes.remove):
            self._summary.pop(path, None)

    def _read_history(self, row: Any) -> None:
        items = [(path, _loaded(content)) for path, content in map(_item, row.item)]
        logged_step = as_number(dict(items).get(("_step",)))
        if row.HasField("step"):
            step = row.step.num
        else:
            step = int(logged_step) if logged_step is not None and logged_step.is_integer() else self._step + 1
        self._step = step
        if self._before is None:
            self._before = self._follows(step)
        step += self._before
        numbers, others = _numbers(items)
        self._others |= dict.fromkeys(others)
        files, codes, steps, xs, values = self._rows
        for name, logged in numbers.items():
            files.append(len(self._files) - 1)
            codes.append(self._codes.setdefault(name, len(self._codes)))
            steps.append(step)
            xs.append(numbers.get(self._step_metric(name), math.nan))
            values.append(logged)

    def _follows(self, step: int) -> int:
        """Return the number to add to the steps of the current file, which begins at `step`."""
        steps = self._rows[2]
        if not self._resumes or step or not len(steps):
            return 0
        last = max(steps)
        what = "the run was resumed offline, so W&B restarted its steps at 0"
        self._problem(f"{self._files[-1]}: {what}; the import continues them after step {last}")
        return last + 1

    def _step_metric(self, name: str) -> str:
        if name in self._step_metrics:
            return self._step_metrics[name]
        fitting = [prefix for prefix in self._globs if name.startswith(prefix)]
        return self._globs[max(fitting, key=len)] if fitting else ""

    def points(self, label: str) -> Iterator[tuple[int, str, float]]:
        """Yield (step, name, value) of all files in the order of logging; `label` names the run in reports."""
        rows = self._placed()
        rows = rows[self._kept(rows, label)]
        last = int(rows["step"].max()) if len(rows) else 0
        names = list(self._codes)
        for step, code, value in zip(rows["step"].tolist(), rows["code"].tolist(), rows["value"].tolist(), strict=True):
            yield step, names[code], value
        if self.state != "running":  # otherwise its content may be from a row that is still to come
            for name, value in self._only_in_summary():
                yield last, name, value
        if self._others:
            others = shortened(sorted(self._others))
            self._problem(f"{self._files[-1]}: {label}: values that are not numbers are left out: {others}")

    def _placed(self) -> pd.DataFrame:
        """Return a frame with the columns file, code of the name, axis, step on this axis and value.

        Axis "" is W&B's own step.
        """
        columns = dict(zip(("file", "code", "step", "x", "value"), map(np.array, self._rows), strict=True))
        rows = pd.DataFrame(columns).astype({"code": np.int64})
        is_integer = np.isfinite(rows["x"]) & (rows["x"] % 1 == 0) & (rows["x"].abs() < 2**53)
        axes = {code: self._step_metric(name) for name, code in self._codes.items()}
        axes |= dict.fromkeys(rows["code"][~is_integer], "")
        rows["axis"] = rows["code"].map(axes)
        rows["step"] = rows["step"].where(rows["axis"] == "", rows["x"].where(is_integer, 0).astype(np.int64))
        return rows

    def _kept(self, rows: pd.DataFrame, label: str) -> pd.Series:
        """Return a mask of the rows that no later file replaces."""
        kept = pd.Series(True, rows.index)
        for number, file in enumerate(self._files[1:], start=1):
            starts = rows[rows["file"] == number].groupby("axis")["step"].min()
            again = kept & (rows["file"] < number) & (rows["step"] >= rows["axis"].map(starts))  # of no start: NaN
            if again.any():
                begun = starts[rows["axis"][again].unique()].min()
                what = f"the values logged earlier for that step and later steps are replaced ({again.sum()})"
                self._problem(f"{file}: {label} begins again at step {begun}; {what}")
                kept &= ~again
        return kept

    def _only_in_summary(self) -> Iterator[tuple[str, float]]:
        items = []
        for path, content in self._summary.items():
            with suppress(ValueError, RecursionError):
                items.append((path, _loaded(content)))
        for name, number in _numbers(items)[0].items():
            parts = name.split(".")
            # `define_metric(summary="max")` leaves loss.max of the metric loss.
            if not any(".".join(parts[:size]) in self._codes for size in range(1, len(parts) + 1)):
                yield name, number


def _numbers(items: Iterable[tuple[_Path, Any]]) -> tuple[dict[str, float], list[str]]:
    """Return {name: number}, and the top-level keys of the items that are not numbers, such as text and media."""
    flat = [leaf for path, value in items if path[0] not in OWN for leaf in _leaves(path, value)]
    described = {path[:-1] for path, _ in flat if path[-1] == _TYPE}
    numbers, others = dict[str, float](), list[str]()
    for path, value in flat:
        number = as_written(value)
        if any(path[:depth] in described for depth in range(1, len(path))) or (number is None and value is not None):
            others.append(path[0])
        elif number is not None:
            numbers[".".join(path)] = number
    return numbers, others


def _leaves(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        yield from _leaves((*path, str(key)), part)


def _item(item: Any) -> tuple[_Path, Any]:
    """Return (path of keys, value) of an item; the value may be JSON bytes.

    Raises ValueError if the item has no key.
    """
    path = tuple(map(text, item.nested_key)) or (text(item.key),)
    if path == ("",):
        raise ValueError("an item has no key")
    for name in ("boolean", "integer", "number"):
        if item.HasField(name):
            return path, getattr(item, name)
    return path, text(item.text) if item.HasField("text") else item.json or item.value_json or b"null"


def _loaded(content: Any) -> Any:
    return json.loads(content) if isinstance(content, bytes) else content


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a `.wandb` file or of all such files below a folder, sorted by start time, or of CSV files.

    Raises ConfigError if there is no W&B file.
    """
    try:
        if path.is_dir():
            candidates = files_of("wandb", path, problem)
            files = sorted(file.resolve() for file in candidates if file.suffix == ".wandb")
            tables = [file for file in candidates if file.suffix == ".csv"]
            if tables and not files:
                yield from read_csvs(path, tables, problem)
                return
            if tables:
                names = shortened([file.name for file in tables])
                problem(f"{path}: CSV files beside .wandb files are left out: {names}")
        else:
            if path.suffix.lower() == ".csv":
                yield from read_csv(path, problem)
                return
            files = [path]
            if not is_wandb(path) and not _just_begun(path):
                raise ConfigError(path, "", None, "is not a W&B file", _REMEDY)
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({one_line(error, 200)})", _REMEDY) from None
    if not files:
        raise ConfigError(path, "", None, "holds no W&B file", _REMEDY)
    yield from _read_files(files, problem)


def _just_begun(path: Path) -> bool:
    """Return whether a file is named like a W&B file and begins with the header, or ends within the header."""
    with regular(path).open("rb") as file:
        return path.suffix == ".wandb" and HEADER.startswith(file.read(len(HEADER)))


def _read_files(files: list[Path], problem: Problem) -> Iterator[ImportedRun]:
    heads: dict[tuple[str, str], list[Head]] = {}
    for file in files:
        try:
            if not is_wandb(file):
                raise OSError("the file does not begin like a W&B file")
            head = read_head(file)
        except OSError as error:
            problem(f"{file}: cannot be read ({one_line(error, 200)}), so it is left out")
            continue
        heads.setdefault((head.project, head.run), []).append(head)
    ids = [run for _, run in heads]
    ordered = sorted(heads.items(), key=lambda item: (min(head.started for head in item[1]), item[0]))
    for (project, run), run_heads in ordered:
        run_heads.sort(key=lambda head: (head.started, str(head.file)))
        yield _imported(f"{project}/{run}" if ids.count(run) > 1 else run, run_heads, problem)


def _imported(key: str, heads: list[Head], problem: Problem) -> ImportedRun:
    run = Run(problem)
    for head in heads:
        try:
            run.add(head.file)
        except OSError as error:
            problem(f"{head.file}: only the records before an error are read ({one_line(error, 200)})")
    source = heads[0].file  # stable when the run is resumed: a later import finds the run by it
    started = next((head.started for head in heads if head.started), None)
    return ImportedRun(
        source=source,
        id=key,
        name=run.name or heads[0].run,
        config=run.config,
        state=run.state,
        started=iso_time(started),
        metrics=metric_table(run.points(f"run {one_line(key, 80)}")),
    )
