"""Reader of Weights & Biases: offline runs (`wandb/offline-run-*/run-*.wandb`) and exported CSV.

A resumed run has several files, which are read as one run. If a later file starts at a step that an earlier one had
passed, it replaces what was logged from that step on. The step of a metric is the step metric that `define_metric` gave
it, if its values are whole, else W&B's own step. A metric that only the summary of an ended run has is at the last
step. Left out: system metrics, W&B's own `_runtime` and `_timestamp`, tables, histograms, media and text.
"""

import json
import math
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line, regular
from ablation.readers.run import ImportedRun, Problem, State, as_number, as_written, iso_time, metric_table, shortened
from ablation.readers.wandb_csv import read_csv
from ablation.readers.wandb_log import HEADER, OWN, fields, is_wandb, read_records

_REMEDY = "name a run-*.wandb, a folder wandb/, one above it, or a CSV that W&B exported"
_DEPTHS = ("*.wandb", "*/*.wandb", "*/*/*.wandb", "*/*/*/*.wandb")  # run folder, wandb/, folder above, folder of these


_TYPE = "_type"  # key of a map that describes a table, a histogram or media

# Fields of wandb/proto/wandb_internal.proto, message by message.
RECORD = {"history": 2, "summary": 3, "config": 5, "metric": 12, "run": 17, "exit": 18}
RUN_RECORD = {"run_id": 1, "project": 3, "config": 4, "summary": 5, "display_name": 8, "start_time": 17}
ITEM = {"key": 1, "nested_key": 2, "value_json": 16}  # of ConfigItem, HistoryItem, SummaryItem
HISTORY_ITEM = {"boolean": 4, "integer": 5, "number": 6, "text": 7, "json": 8}  # instead of value_json
HISTORY_RECORD = {"item": 1, "step": 2}
UPDATES = {"update": 1, "remove": 2}  # of ConfigRecord and SummaryRecord
METRIC_RECORD = {"name": 1, "glob_name": 2, "step_metric": 4}
EXIT_RECORD = {"exit_code": 1, "not_complete": 3}

_Path = tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """The run that a file is part of. `started` is in seconds since the epoch, 0 if the file does not have it."""

    file: Path
    project: str
    run: str
    started: float


def read_head(file: Path) -> Head:
    """Return the head in the file's first records; if they are damaged, from its name.

    Raises:
        OSError: it cannot be read.
    """
    for count, record in enumerate(read_records(file, lambda _: None)):
        with suppress(ValueError):
            for number, value in fields(record):
                if number == RECORD["run"] and isinstance(value, bytes):
                    found = dict(fields(value))
                    project, run = (_text(found.get(RUN_RECORD[key], b"")) for key in ("project", "run_id"))
                    if run:
                        return Head(file, project, run, _seconds(found.get(RUN_RECORD["start_time"], b"")))
        if count > 100:
            break
    return Head(file, "", file.stem.removeprefix("run-"), 0.0)


class Run:
    """The content of a run's files, one after the other.

    Attributes:
        name: "" where none was given.
        state: of the last file.
        config: with the changes that were made while the run went on.
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

    def add(self, file: Path) -> None:
        """Read a further file. Raises OSError if that fails; what was read before the error counts."""
        self.state, self._step = "running", -1
        self._files.append(file)
        damaged = 0
        readers: dict[int, Callable[[bytes], None]] = {
            RECORD["history"]: self._read_history,
            RECORD["summary"]: self._read_summary,
            RECORD["config"]: self._read_config,
            RECORD["metric"]: self._read_metric,
            RECORD["run"]: self._read_run,
            RECORD["exit"]: self._read_exit,
        }
        for record in read_records(file, self._problem):
            try:
                for number, value in fields(record):
                    if isinstance(value, bytes) and number in readers:
                        readers[number](value)
            except (ValueError, RecursionError):
                damaged += 1
        if damaged:
            self._problem(f"{file}: records that make no sense are left out: {damaged}")

    def _read_run(self, message: bytes) -> None:
        for number, value in fields(message):
            if not isinstance(value, bytes):
                continue
            if number == RUN_RECORD["display_name"]:
                self.name = _text(value) or self.name
            elif number == RUN_RECORD["config"]:
                self._read_config(value)
            elif number == RUN_RECORD["summary"]:
                self._read_summary(value)

    def _read_config(self, message: bytes) -> None:
        for number, value in fields(message):
            if not isinstance(value, bytes):
                continue
            path, content = _item(value)
            if path[0].startswith("_"):  # W&B's own: _wandb
                continue
            place: Any = self.config
            for key in path[:-1]:
                if not isinstance(place.get(key), dict):
                    place[key] = {}
                place = place[key]
            if number == UPDATES["update"]:
                place[path[-1]] = json.loads(content, parse_constant=str)
            elif number == UPDATES["remove"]:
                place.pop(path[-1], None)

    def _read_summary(self, message: bytes) -> None:
        for number, value in fields(message):
            if isinstance(value, bytes):
                path, content = _item(value)
                if number == UPDATES["update"]:
                    self._summary[path] = content
                elif number == UPDATES["remove"]:
                    self._summary.pop(path, None)

    def _read_metric(self, message: bytes) -> None:
        found = {number: _text(value) for number, value in fields(message)}
        name, glob = found.get(METRIC_RECORD["name"]), found.get(METRIC_RECORD["glob_name"])
        step_metric = found.get(METRIC_RECORD["step_metric"])
        if step_metric and name:
            self._step_metrics[name] = step_metric
        elif step_metric and glob:
            self._globs[glob.removesuffix("*")] = step_metric

    def _read_exit(self, message: bytes) -> None:
        found = dict(fields(message))
        if not found.get(EXIT_RECORD["not_complete"]):
            self.state = "failed" if found.get(EXIT_RECORD["exit_code"]) else "finished"

    def _read_history(self, message: bytes) -> None:
        items: list[tuple[_Path, Any]] = []
        step = None
        for number, value in fields(message):
            if not isinstance(value, bytes):
                continue
            if number == HISTORY_RECORD["step"]:
                step = _signed(dict(fields(value)).get(1, 0))
            elif number == HISTORY_RECORD["item"]:
                path, content = _item(value)
                items.append((path, json.loads(content) if isinstance(content, bytes) else content))
        own = as_number(dict(items).get(("_step",)))
        if step is None:
            step = int(own) if own is not None and own.is_integer() else self._step + 1
        self._step = step
        numbers = dict(self._numbers(items))
        files, codes, steps, xs, values = self._rows
        for name, logged in numbers.items():
            files.append(len(self._files) - 1)
            codes.append(self._codes.setdefault(name, len(self._codes)))
            steps.append(step)
            xs.append(numbers.get(self._step_metric(name), math.nan))
            values.append(logged)

    def _numbers(self, items: Iterable[tuple[_Path, Any]]) -> Iterator[tuple[str, float]]:
        flat = [leaf for path, value in items for leaf in _leaves(path, value)]
        described = {path[:-1] for path, _ in flat if path[-1] == _TYPE}
        for path, value in flat:
            if path[0] in OWN:
                continue
            number = as_written(value)
            if any(path[:depth] in described for depth in range(1, len(path))) or (
                number is None and value is not None
            ):
                self._others.setdefault(path[0])
            elif number is not None:
                yield ".".join(path), number

    def _step_metric(self, name: str) -> str:
        if name in self._step_metrics:
            return self._step_metrics[name]
        fitting = [prefix for prefix in self._globs if name.startswith(prefix)]
        return self._globs[max(fitting, key=len)] if fitting else ""

    def points(self, label: str) -> Iterator[tuple[int, str, float]]:
        """Yield (step, name, value) in the order of logging, once all files were added; `label` names the run."""
        names = list(self._codes)
        files, codes, steps, xs, values = (np.array(column) for column in self._rows)
        places, axes = self._places(names, codes, steps, xs)
        kept = self._kept(files, axes[codes] if len(codes) else codes, places, label)
        last = int(places[kept].max()) if kept.any() else 0
        for place in np.flatnonzero(kept):
            yield int(places[place]), names[codes[place]], float(values[place])
        if self.state != "running":  # otherwise its content may be from a row that is still to come
            for name, value in self._only_in_summary():
                yield last, name, value
        if self._others:
            self._problem(f"{self._files[-1]}: {label}: no numbers, and so left out: {shortened(sorted(self._others))}")

    def _places(
        self, names: list[str], codes: NDArray[Any], steps: NDArray[Any], xs: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the step of each row, and for each name the number of its step axis: 0 is W&B's own."""
        with np.errstate(invalid="ignore"):
            whole = np.isfinite(xs) & (xs == np.floor(xs)) & (np.abs(xs) < 2**53)
        broken = np.bincount(codes[~whole], minlength=len(names)) > 0 if len(codes) else np.zeros(0, bool)
        numbers = {"": 0}
        axes = np.zeros(len(names), np.int64)
        for code, name in enumerate(names):
            if not broken[code]:
                axes[code] = numbers.setdefault(self._step_metric(name), len(numbers))
        places = steps.copy()
        if len(codes):
            own = axes[codes] > 0
            places[own] = xs[own].astype(np.int64)
        return places, axes

    def _kept(self, files: NDArray[Any], axes: NDArray[Any], places: NDArray[Any], label: str) -> NDArray[np.bool_]:
        """Return which rows are not replaced by a later file."""
        kept = np.ones(len(files), bool)
        for number, file in enumerate(self._files[1:], start=1):
            begun, replaced = [], 0
            for axis in np.unique(axes[files == number]):
                start = places[(files == number) & (axes == axis)].min()
                again = kept & (files < number) & (axes == axis) & (places >= start)
                if again.any():
                    begun.append(int(start))
                    replaced += int(again.sum())
                    kept &= ~again
            if begun:
                words = f"{replaced} values that were logged before, from there on, are replaced"
                self._problem(f"{file}: {label} begins again at step {min(begun)}; {words}")
        return kept

    def _only_in_summary(self) -> Iterator[tuple[str, float]]:
        items = []
        for path, content in self._summary.items():
            with suppress(ValueError, RecursionError):
                items.append((path, json.loads(content) if isinstance(content, bytes) else content))
        others = dict(self._others)
        for name, number in self._numbers(items):
            parts = name.split(".")
            # `define_metric(summary="max")` leaves loss.max of the metric loss.
            if not any(".".join(parts[:size]) in self._codes for size in range(1, len(parts) + 1)):
                yield name, number
        self._others = others


def _leaves(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        yield from _leaves((*path, str(key)), part)


def _item(message: bytes) -> tuple[_Path, Any]:
    """Return (path of keys, value) of an item: bytes of JSON, or the value itself. Raises ValueError without a key."""
    nested: list[str] = []
    key, content = "", b"null"
    plain: Any = None
    for number, value in fields(message):
        if number == ITEM["key"]:
            key = _text(value)
        elif number == ITEM["nested_key"]:
            nested.append(_text(value))
        elif number in (ITEM["value_json"], HISTORY_ITEM["json"]) and isinstance(value, bytes):
            content = value
        elif number == HISTORY_ITEM["boolean"]:
            plain = bool(value)
        elif number == HISTORY_ITEM["integer"] and isinstance(value, int):
            plain = value >> 1 ^ -(value & 1)  # zigzag
        elif number == HISTORY_ITEM["number"] and isinstance(value, bytes) and len(value) == 8:
            [plain] = struct.unpack("<d", value)
        elif number == HISTORY_ITEM["text"]:
            plain = _text(value)
    if not nested and not key:
        raise ValueError("an item has no key")
    return tuple(nested) or (key,), content if plain is None else plain


def _text(value: int | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _signed(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a step is not a whole number")
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def _seconds(message: int | bytes) -> float:
    """Return the seconds since the epoch of a google.protobuf.Timestamp."""
    found = dict(fields(message)) if isinstance(message, bytes) else {}
    seconds, nanoseconds = found.get(1, 0), found.get(2, 0)
    return float(_signed(seconds)) + (nanoseconds if isinstance(nanoseconds, int) else 0) / 1e9


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a `.wandb` file, of all such files in a folder, or of a CSV, by the time of their start.

    Raises:
        ConfigError: there is no W&B file.
    """
    try:
        if path.is_dir():
            # `latest-run` is a link to another folder, which is not read twice.
            files = sorted({file.resolve() for depth in _DEPTHS for file in path.glob(depth)})
        else:
            if path.suffix.lower() == ".csv":
                yield from read_csv(path, problem)
                return
            files = [path]
            if not is_wandb(path) and not _just_begun(path):
                raise ConfigError(path, "", None, "is not a W&B file", _REMEDY)
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read: {one_line(error, 200)}", _REMEDY) from None
    if not files:
        raise ConfigError(path, "", None, "does not hold a W&B file", _REMEDY)
    yield from _read_files(files, problem)


def _just_begun(path: Path) -> bool:
    """Whether a file has W&B's name and ends within its first header."""
    with regular(path).open("rb") as file:
        return path.suffix == ".wandb" and HEADER.startswith(file.read(len(HEADER)))


def _read_files(files: list[Path], problem: Problem) -> Iterator[ImportedRun]:
    heads: dict[tuple[str, str], list[Head]] = {}
    for file in files:
        try:
            if not is_wandb(file):
                raise OSError("it does not begin as a W&B file does")
            head = read_head(file)
        except OSError as error:
            problem(f"{file}: cannot be read: {one_line(error, 200)}")
            continue
        heads.setdefault((head.project, head.run), []).append(head)
    ids = [run for _, run in heads]
    ordered = sorted(heads.items(), key=lambda item: (min(head.started for head in item[1]), item[0]))
    for (project, run), parts in ordered:
        parts.sort(key=lambda head: (head.started, str(head.file)))
        yield _imported(f"{project}/{run}" if ids.count(run) > 1 else run, parts, problem)


def _imported(key: str, parts: list[Head], problem: Problem) -> ImportedRun:
    whole = Run(problem)
    for head in parts:
        try:
            whole.add(head.file)
        except OSError as error:
            problem(f"{head.file}: cannot be read to its end: {one_line(error, 200)}")
    source = parts[0].file  # stable when the run is resumed: a later import finds the run by it
    started = next((head.started for head in parts if head.started), None)
    return ImportedRun(
        source=source,
        id=key,
        name=whole.name or parts[0].run,
        config=whole.config,
        state=whole.state,
        started=iso_time(started),
        metrics=metric_table(whole.points(f"run {one_line(key, 80)}")),
    )
