"""Past runs, with which a new run is compared: a folder of runs in any format, or a small CSV file kept in git.

The file has a row for each run and metric: `run,metric,window,last_step,value`.
"""

import csv
import hashlib
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ablation.config.formats import formats_of
from ablation.config.names import suggest
from ablation.contract.atomic import write_text
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError
from ablation.contract.process import alone
from ablation.contract.reading import read_text
from ablation.readers.kept import kept_step
from ablation.readers.run import ImportedRun, Problem, load_reader, name_below
from ablation.readers.tabular import SUFFIXES
from ablation.readers.walk import files_below

COLUMNS = ("run", "metric", "window", "last_step", "value")
_FORMATS = [name for name in formats_of("collect") if name not in ("items", "lm_eval")]  # of single runs of a training
_SEED = re.compile(r"(seed|(?<![^\W_])s)[-_=]?$", re.IGNORECASE)  # before a number
_DATE = re.compile(r"(?<!\d)(20\d\d)\D?([01]\d)\D?([0-3]\d)(?:\D?([0-2]\d)\D?([0-5]\d)(?:\D?([0-5]\d))?)?(?!\d)")


@dataclass(frozen=True)
class Value:
    """The value of a metric in one run, over a window of the metric's logged values.

    `last_step` is the last step at which the run logged the metric. `started` is ISO 8601; None if it is not recorded.
    """

    run: str
    metric: str
    window: str
    last_step: int
    value: float
    started: str | None = None

    @property
    def identity(self) -> str:
        """Return what identifies the run: the digest that follows `#` in its name, or else its name."""
        return self.run.rpartition("#")[2]

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (identity, metric, window), which identifies the row in a file of past runs."""
        return self.identity, self.metric, self.window


def read_runs(paths: Sequence[Path], metrics: Sequence[str], problem: Problem) -> list[ImportedRun]:
    """Return the runs at the paths; each path is read in the first format that gives a run with one of the metrics.

    Raises ConfigError if a path does not exist or has no such format.
    """
    return [run for path in paths for run in _runs_at(path, metrics, problem)]


def _runs_at(path: Path, metrics: Sequence[str], problem: Problem) -> list[ImportedRun]:
    if not path.exists():
        raise ConfigError("nightly", str(path), None, "does not exist", "name a folder or a file of runs")
    logged: set[str] = set()
    for name in _FORMATS:
        problems: list[str] = []
        try:
            runs = list(_runs_of(name, path, problems.append))
        except ConfigError:  # not of this format
            continue
        names = {name for run in runs for name in pc.unique(run.metrics["name"]).to_pylist()}
        if names.intersection(metrics):
            for each in (*problems, *_unread(path, name, runs)):
                problem(each)
            return runs
        logged |= names
    if not logged:
        remedy = f"name runs in one of the formats {', '.join(_FORMATS)}"
        raise ConfigError("nightly", str(path), None, "holds no run that can be read", remedy)
    what = f"no run in {path} has logged this metric"
    raise ConfigError("nightly", "--metric", metrics[0], what, suggest(metrics[0], logged))


def _unread(path: Path, name: str, runs: Sequence[ImportedRun]) -> Iterator[str]:
    """Yield a note on the subfolders of a folder of runs that hold no run in the format that was read."""
    inside = list(path.iterdir()) if path.is_dir() else []
    folders = {each.name for each in inside if each.is_dir() and not each.name.startswith(".")}
    read = {run.source.relative_to(path).parts[0] for run in runs if run.source != path and inside}
    if len(folders & read) > 1 and (left := sorted(folders - read)):
        yield f"{path}: folders without a run in the format {name} are left out: {listed(left)}"


def _runs_of(name: str, path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a format at a path; for the format `metrics`, one run for each folder at or below the path."""
    reader = load_reader(name, "collect")
    tables = [f"metrics{suffix}" for suffix in SUFFIXES]
    if name != "metrics" or not path.is_dir() or any((path / table).is_file() for table in tables):
        yield from map(_marked, reader(path, problem))
        return
    folders = {file.parent for file in files_below(path, tables, problem)}
    for folder in sorted(each for each in folders if folders.isdisjoint(each.parents)):  # a table below is of one run
        try:
            yield from (_marked(replace(run, name=name_below(path, folder))) for run in reader(folder, problem))
        except ConfigError as error:
            problem(str(error))


def _marked(run: ImportedRun) -> ImportedRun:
    """Return the run, with the state `running` if the last line of its CSV file was cut off."""
    cut = run.source.suffix == ".csv" and not read_text(run.source).endswith("\n")
    return replace(run, state="running") if cut else run


def digest(run: ImportedRun) -> str:
    """Return a digest of the steps and values that a run logged, which identifies it wherever its files are."""
    logged = b"".join(run.metrics[name].to_numpy().tobytes() for name in ("step", "value"))
    return hashlib.sha256(logged).hexdigest()[:8]


def in_time(starts: Mapping[str, str | None]) -> tuple[list[str], str]:
    """Return the names of runs in time order, and what shows the order; ([], "") if the order is not certain.

    The order is certain if all runs have different starts, if all names have different dates (year first), or if the
    names differ only in one running number that is not a seed. `starts` is {name: start}; a start is ISO 8601, in the
    same time zone for all runs, or None.
    """
    if all(start and start > "1971" for start in starts.values()):  # 1970: not in the file
        return _sorted(starts, "start times")
    shown = {name: name.rsplit("#", 1)[0] for name in starts}
    dates = {name: _DATE.findall(text) for name, text in shown.items()}
    if all(len(found) == 1 for found in dates.values()):
        parts = min(sum(map(bool, found[0])) for found in dates.values())
        return _sorted({name: found[0][:parts] for name, found in dates.items()}, "the dates in their names")
    cut = {name: re.split(r"(\d+)", text) for name, text in shown.items()}
    places = [place for place, texts in enumerate(zip(*cut.values(), strict=False)) if len({*texts}) > 1]
    if len({*map(len, cut.values())}) == 1 and len(places) == 1 and places[0] % 2:
        numbers = {name: int(parts[places[0]]) for name, parts in cut.items()}
        running = max(numbers.values()) - min(numbers.values()) < 2 * len(numbers)
        if running and not any(_SEED.search(parts[places[0] - 1]) for parts in cut.values()):
            return _sorted(numbers, "the numbers in their names")
    return [], ""


def _sorted(keys: Mapping[str, Any], by: str) -> tuple[list[str], str]:
    return (sorted(keys, key=keys.__getitem__), by) if len({*keys.values()}) == len(keys) else ([], "")


@dataclass(frozen=True)
class Window:
    """A rule that computes the value of a run: the mean of the last `count` logged values up to a step.

    Attributes:
        text: `last` or `last:N`.
        at: the last step that counts: a number, `last`, `best` (of the first metric), or None for the step of the model
            that the run kept, which is the last step if the run does not record it.
        smaller: whether a smaller value of the first metric is better.
    """

    text: str
    count: int
    at: int | str | None = None
    smaller: bool = False

    @property
    def ends_the_run(self) -> bool:
        """Return whether a run counts only if its last logged value is finite; False if `at` is a number."""
        return not isinstance(self.at, int)

    def __str__(self) -> str:
        return self.text if self.at is None else f"{self.text} at {self.at}"

    def step(self, run: ImportedRun, name: str, metric: str, note: Problem) -> int | None:
        """Return the last step whose values count; None for all steps.

        `note` gets a line if a kept model before the last step decides, or if the settings leave the step open.
        """
        if self.at == "best":
            rows = run.metrics.filter(pc.equal(run.metrics["name"], metric)).filter(pc.is_finite(pc.field("value")))
            best = pc.min(rows["value"]) if self.smaller else pc.max(rows["value"])
            return pc.min(rows.filter(pc.equal(rows["value"], best))["step"]).as_py() if len(rows) else None
        if self.at is not None:
            return self.at if isinstance(self.at, int) else None
        remedy = "for another step pass --at best or --at STEP"
        kept = kept_step(run, lambda line: note(f"{name}: {line}"), remedy)
        if kept is None or kept == pc.max(run.metrics["step"]).as_py():
            return None
        note(f"{name}: the values are those of the kept model, at step {kept}; for the last step pass --at last")
        return kept


def values_of(run: ImportedRun, name: str, metrics: Sequence[str], window: Window, note: Problem) -> list[Value]:
    """Return the value of each metric of a run over the window.

    Raises ConfigError if a metric was logged too rarely up to the step of the window, or not as far as that step.
    """
    until = window.step(run, name, metrics[0], note)
    values = []
    for metric in metrics:
        rows = run.metrics.filter(pc.equal(run.metrics["name"], metric))
        counted = rows
        if isinstance(window.at, int) and len(rows) and (end := pc.max(rows["step"]).as_py()) < window.at:
            raise ConfigError(name, metric, None, f"ends at step {end}", "pass --at with a step that all runs reached")
        if until is not None and len(rows) and (window.at is not None or pc.min(rows["step"]).as_py() <= until):
            counted = rows.filter(pc.less_equal(rows["step"], until))  # else logged of the kept model, after training
        if len(counted) < window.count:
            often = f"has been logged only {len(counted)} time{'s' * (len(counted) > 1)}" + (
                f" up to step {until}" if until is not None else ""
            )
            has = often if len(counted) else f"has not been logged{f' up to step {until}' if len(rows) else ''}"
            shorter = f", or pass --window last:{len(counted)}" if len(counted) else ""
            raise ConfigError(name, metric, None, has, f"name another metric with --metric{shorter}")
        last = counted.slice(len(counted) - window.count)  # sorted by step
        value = float(pc.mean(last["value"]).as_py())
        values.append(Value(name, metric, str(window), int(pc.max(rows["step"]).as_py()), value, run.started))
    return values


def window_of(text: str, at: str | None, *, smaller: bool) -> Window:
    """Return the window that `--window` and `--at` describe. Raises ConfigError for invalid values."""
    head, _, number = text.partition(":")
    if text != "last" and (head != "last" or not number.isdecimal() or int(number) < 1):
        raise ConfigError("nightly", "--window", text, "is not a valid window", "write last, or last:N such as last:20")
    if at is not None and at not in ("last", "best") and not at.isdecimal():
        raise ConfigError("nightly", "--at", at, "is not a step", "write last, best or a number such as 1000")
    return Window(text, int(number or 1), int(at) if at and at.isdecimal() else at, smaller)


def read_file(path: Path) -> list[Value]:
    """Return the rows of a file of past runs without duplicates.

    Raises ConfigError if a row is not valid, and OSError if the file cannot be read.
    """
    try:
        text = read_text(path)
        rows = csv.DictReader(io.StringIO(text), strict=True)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            problem, remedy = f"the first line is not {','.join(COLUMNS)}", "name a file that `nightly` wrote"
            raise ConfigError(path, "", None, problem, remedy)
        if not text.endswith("\n"):
            problem, remedy = "has no line break, so it may be cut off", "restore the file, for example from git"
            raise ConfigError(path, f"line {len(text.splitlines())}", text.splitlines()[-1], problem, remedy)
        values: dict[tuple[str, str, str], Value] = {}
        for row in rows:
            value = _value(path, rows.line_num, row)
            if values.setdefault(value.key, value) != value:
                problem = f"{value.run} has another value of {value.metric} in an earlier line"
                raise ConfigError(path, f"line {rows.line_num}", value.value, problem, "delete one of the two lines")
        return [*values.values()]
    except (csv.Error, UnicodeDecodeError) as error:
        problem, remedy = f"is not a CSV file ({error})", "restore the file, for example from git"
        raise ConfigError(path, "", None, problem, remedy) from None


def _value(path: Path, line: int, row: dict[str, str]) -> Value:
    try:
        value = Value(row["run"], row["metric"], row["window"], int(row["last_step"]), float(row["value"]))
    except (TypeError, ValueError):
        value = None
    if value is None or None in row or not math.isfinite(value.value):
        shown = ",".join(str(cell) for cell in row.values())
        remedy = "write a cell for each column, with a whole last_step and a finite value, or delete the line"
        raise ConfigError(path, f"line {line}", shown, f"does not match {','.join(COLUMNS)}", remedy)
    return value


def append(path: Path, new: Iterable[Value]) -> int:
    """Add the values that a file of past runs lacks, and return the number of runs with such values.

    The file is created if it does not exist, and replaced as a whole, by one process at a time.
    """
    lock = path.with_name(f".{path.name}.lock")
    with alone(lock):
        past = read_file(path) if path.exists() else []
        known = {value.key for value in past}
        added = [value for value in new if value.key not in known]
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows((each.run, each.metric, each.window, each.last_step, repr(each.value)) for each in past + added)
        write_text(path, text.getvalue())
        lock.unlink()
    return len({value.run for value in added})
