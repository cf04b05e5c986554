"""Reader of TensorBoard's event files: one run for each folder that holds event files.

All points are read; TensorBoard's own EventAccumulator would keep only 10,000 of each tag. A file that begins with a
purge (`SummaryWriter(purge_step=...)`) replaces what its folder logged from that step on. A file without a purge
replaces what was logged from its first step on if it began after another file with the same tags had ended. If files
with the same tags were open at the same time, both count.

Some folders are parts of a run. `add_scalars` makes a folder for each line, such as `loss_train`; its values are called
`loss/train`. Keras and others make folders `train` and `validation` in the run's folder; these names are put before the
names of the values. If there is a folder for each rank, only rank 0 is read.

The Hugging Face Trainer makes a folder `runs/<date>_<host>` at each start, and `add_hparams` a folder named by a time
stamp. Both belong to the run above them, but time stamps with different settings are separate runs if nothing above
them has scalars. Settings come from the hparams plugin, the Trainer's text `args`, a table `|param|value|` such as
CleanRL writes, or Lightning's `hparams.yaml`.
"""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ablation.config.yaml_io import parse_foreign
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.extras import need
from ablation.contract.reading import regular
from ablation.readers.run import (
    METRIC_ROWS,
    Array,
    ImportedRun,
    Problem,
    name_below,
    read_settings,
    shortened,
    table_of_columns,
)
from ablation.readers.tensorboard_log import read_events
from ablation.readers.walk import files_of

_START_OF_TRAINER = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*")
_TIME_STAMP = re.compile(r"\d{9,}\.\d+")
_SPLITS = ("train", "validation", "val", "test", "eval", "evaluation")
_RANK = re.compile(r"((?:local|global|node)?[-_]?rank[-_]?)(\d+)", re.IGNORECASE)
_LIGHTNING = "hparams.yaml"
_HPARAMS = "_hparams_/session_start_info"


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs in an event file, or in all event files below a folder.

    Raises ConfigError if there is no event file.
    """
    root = path if path.is_dir() else path.parent
    files = files_of("tensorboard", path, problem)
    if not files or (path.is_file() and "tfevents" not in path.name):
        remedy = "name a folder with *tfevents* files, or a folder above it"
        raise ConfigError(path, "", None, "holds no event file", remedy)
    need("tensorboard", f"{path}: reading event files")
    files = _of_rank_0(root, files, problem)
    trainer_folders = {file.parent.parent for file in files if _is_by_trainer(file)}
    names: dict[Path, set[str]] = {}  # of the folders with events, by the folder above
    for folder in {file.parent for file in files}:
        names.setdefault(folder.parent, set()).add(folder.name)
    runs: dict[Path, list[Path]] = {}
    for file in files:
        runs.setdefault(_folder_of_run(file, root, trainer_folders, names), []).append(file)
    for folder, run_files in runs.items():
        logs = [log for file in run_files if (log := _read_file(file, folder, problem)).first is not None]
        if not logs:
            problem(f"{folder}: is left out, because its event files hold no events")
            continue
        logs.sort(key=lambda log: (log.first, log.last, log.file.name))
        for place, log_files in _runs_of(folder, logs, problem).items():
            yield ImportedRun(
                source=place,
                id="events",
                name=name_below(root, place),
                config=_config(log_files) or read_settings([place / _LIGHTNING], problem),
                started=datetime.fromtimestamp(log_files[0].first or 0.0, UTC).isoformat(timespec="seconds"),
                metrics=_joined(log_files, problem),
            )


def _runs_of(folder: Path, logs: list["_EventLog"], problem: Problem) -> dict[Path, list["_EventLog"]]:
    """Return {place: its logs}: one run or, if calls of `add_hparams` differ and there are no curves, one per call."""
    calls: dict[Path, list[_EventLog]] = {}
    for log in logs:
        if _TIME_STAMP.fullmatch(log.file.parent.name):
            calls.setdefault(log.file.parent, []).append(log)
    if len({str(_config(call)) for call in calls.values()}) < 2:
        return {folder: logs}
    if not any(len(log.values) for log in logs if log.file.parent not in calls):
        return calls
    if len({place.parent for place in calls}) < len(calls):  # else each is of another start of the Trainer
        what = f"has curves, so its {len(calls)} calls to add_hparams are read as one run"
        problem(f"{folder}: {what}, with the settings of the last call")
    return {folder: logs}


def _of_rank_0(root: Path, files: list[Path], problem: Problem) -> list[Path]:
    """Return the files; beside a folder of rank 0, leave out and report folders of other ranks."""
    folders = {file.parent for file in files}
    others = {
        folder: beside
        for folder in folders
        if (rank := _RANK.fullmatch(folder.name)) and int(rank[2])
        for beside in (folder.with_name(rank[1] + "0" * len(rank[2])), folder.with_name(f"{rank[1]}0"))
        if beside in folders
    }
    if others:
        shown = shortened(sorted(name_below(root, folder) for folder in others))
        problem(f"{root}: only the folders of rank 0 are read; left out: {shown}")
    return [file for file in files if others.keys().isdisjoint(file.parents)]  # parts of theirs, too


def _folder_of_run(file: Path, root: Path, trainer_folders: set[Path], names: Mapping[Path, set[str]]) -> Path:
    folder = file.parent
    if folder != root and folder.parent.name in names.get(folder.parent.parent, ()):
        folder = folder.parent if _line(folder.name, _first_tag(file)) else folder
    if folder != root and (
        _RANK.fullmatch(folder.name) or (folder.name in _SPLITS and all(map(_is_part, names[folder.parent])))
    ):
        return folder.parent
    if _TIME_STAMP.fullmatch(folder.name) and folder != root:
        folder = folder.parent
    if folder.parent in trainer_folders and folder != root and _START_OF_TRAINER.fullmatch(folder.name):
        folder = folder.parent.parent
    return folder


def _is_part(name: str) -> bool:
    return name in _SPLITS or _TIME_STAMP.fullmatch(name) is not None


def _line(folder: str, tag: str) -> str:
    """Return `name` if `add_scalars(tag, {name: value})` wrote the folder, which is then `<tag>_<name>`; else ""."""
    start = tag.replace("/", "_") + "_"
    return folder.removeprefix(start) if tag and folder.startswith(start) else ""


def _first_tag(file: Path) -> str:
    events = filter(None, map(_parsed, read_events(file, lambda _: None)))
    return next((event.numbers[0][0] for event in events if event.numbers), "")


def _is_by_trainer(file: Path) -> bool:
    """Return whether a log `runs/<date>_<host>/*` begins with settings, as only logs of the Trainer do."""
    if not _START_OF_TRAINER.fullmatch(file.parent.name) or file.parent.parent.name != "runs":
        return False
    with regular(file).open("rb") as log:
        return b"args/text_summary" in log.read(1 << 16)


@dataclass
class _EventLog:
    """The log of one file: values in the order of the file, times in seconds since the epoch."""

    file: Path
    first: float | None = None
    last: float = 0.0
    purged: int | None = None  # from this step on, what was in its folder before is void
    tags: list[str] = field(default_factory=list)
    codes: Array = field(default_factory=lambda: np.empty(0, np.int64))  # places in `tags`, by row
    steps: Array = field(default_factory=lambda: np.empty(0, np.int64))
    values: Array = field(default_factory=lambda: np.empty(0))
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def starts(self) -> dict[str, int]:
        """Return {tag: its first step in the file}."""
        codes, places = np.unique(self.codes, return_index=True)
        return {self.tags[code]: int(self.steps[place]) for code, place in zip(codes, places, strict=True)}


def _config(logs: Iterable[_EventLog]) -> dict[str, Any]:
    return {key: value for log in logs for key, value in log.config.items()}


class _Kept:
    """Collects the values of a folder file by file; a restart removes the values that it repeats."""

    def __init__(self) -> None:
        self.files: list[tuple[int, list[Array]]] = []  # the largest step so far, and steps, codes, values

    def add(self, columns: list[Array]) -> None:
        if len(columns[0]):
            before = self.files[-1][0] if self.files else int(columns[0][0])
            self.files.append((max(before, int(columns[0].max())), columns))

    def cut(self, step: int) -> None:
        """Remove the values from a step on; leave files that ended before this step as they are."""
        late = []
        while self.files and self.files[-1][0] >= step:
            late.append(self.files.pop()[1])
        for columns in reversed(late):
            kept = columns[0] < step
            self.add([column[kept] for column in columns])


def _joined(logs: Iterable[_EventLog], problem: Problem) -> pa.Table:
    """Return the metrics in a run's files (METRIC_ROWS); restarts replace the values that they repeat."""
    kept_by_folder: dict[Path, _Kept] = {}
    tags: dict[str, int] = {}
    ended: dict[str, float] = {}  # per tag, when the last file that logged it ended
    before: dict[tuple[Path, str], _EventLog] = {}
    for log in logs:
        starts, folder = log.starts, log.file.parent
        _note_two_writers(log, [before[folder, tag] for tag in starts if (folder, tag) in before], problem)
        before |= {(folder, tag): log for tag in starts}
        again = [start for tag, start in starts.items() if tag in ended and ended[tag] <= (log.first or 0.0)]
        folder_kept = kept_by_folder.setdefault(folder, _Kept())
        if log.purged is not None:
            folder_kept.cut(log.purged)
        elif again and not _TIME_STAMP.fullmatch(folder.name):  # add_hparams logs its metrics at step 0
            for kept in kept_by_folder.values():
                kept.cut(min(again))
        codes = np.array([tags.setdefault(tag, len(tags)) for tag in log.tags], np.int64)[log.codes]
        folder_kept.add([log.steps, codes, log.values])
        ended |= dict.fromkeys(starts, log.last)
    files = [columns for kept in kept_by_folder.values() for _, columns in kept.files]
    if not files:
        return METRIC_ROWS.empty_table()
    steps, codes, values = (np.concatenate(columns) for columns in zip(*files, strict=True))
    return table_of_columns(steps, codes, values, list(tags))


def _note_two_writers(log: _EventLog, others: Sequence[_EventLog], problem: Problem) -> None:
    """Report a file that logs the same tags at the same time as another file, for example one of another rank."""
    for other in {id(each): each for each in others if each.last > (log.first or 0.0)}.values():
        shared = sorted(log.starts.keys() & other.starts.keys())
        what = f"logs {shortened(shared)} at the same time as {other.file.name}, as ranks do that share a folder"
        problem(f"{log.file}: {what}; if both have a step, this file's value is used; move the wrong file away")


@dataclass
class _Event:
    time: float
    step: int
    purges: bool
    numbers: list[tuple[str, float]] = field(default_factory=list)  # tag and value
    config: dict[str, Any] = field(default_factory=dict)
    damaged: int = 0


@cache  # an import for each event would take as long as parsing it
def _protocol() -> Any:
    from tensorboard.compat.proto import event_pb2

    return event_pb2


def _parsed(content: bytes) -> _Event | None:
    protocol = _protocol()
    try:
        event = protocol.Event.FromString(content)
    except Exception:  # protobuf's own error, whose class depends on its version
        return None
    what = event.WhichOneof("what")
    starts = what == "session_log" and event.session_log.status == protocol.SessionLog.START
    parsed = _Event(event.wall_time, event.step, starts)
    for value in event.summary.value if what == "summary" else ():
        number = _scalar(value)
        if number is not None:
            parsed.numbers.append((value.tag, number))
            continue
        try:
            parsed.config |= _settings(value)
        except Exception:  # likewise
            parsed.damaged += 1
    return parsed


def _read_file(path: Path, run: Path, problem: Problem) -> _EventLog:
    log, damaged = _EventLog(path), 0
    tag_codes: dict[str, int] = {}
    codes, steps, values = array("q"), array("q"), array("d")
    purges: list[tuple[int, int]] = []  # number of values before it, and its step
    for content in read_events(path, problem):
        event = _parsed(content)
        if event is None:
            damaged += 1
            continue
        log.first = event.time if log.first is None else log.first
        log.last, damaged = max(log.last, event.time), damaged + event.damaged
        log.config |= event.config
        purges += [(len(steps), event.step)] if event.purges else []
        for tag, value in event.numbers:
            codes.append(tag_codes.setdefault(tag, len(tag_codes)))
            steps.append(event.step)
            values.append(value)
    if damaged:
        problem(f"{path}: damaged records are left out ({damaged})")
    order, columns = np.arange(len(steps)), [np.array(codes), np.array(steps), np.array(values)]
    for before, step in purges:
        kept = (order >= before) | (columns[1] < step)
        order, columns = order[kept], [column[kept] for column in columns]
    log.codes, log.steps, log.values = columns
    log.purged = min((step for _, step in purges), default=None)
    log.tags = list(tag_codes)
    folder_name = path.parent.name
    if path.parent != run and folder_name in _SPLITS:
        log.tags = [tag if tag.startswith(f"{folder_name}/") else f"{folder_name}/{tag}" for tag in log.tags]
    elif path.parent != run:
        log.tags = [f"{tag}/{line}" if (line := _line(folder_name, tag)) else tag for tag in log.tags]
    return log


def _scalar(value: Any) -> float | None:
    """Return a summary's plain number (TensorFlow 1, torch) or scalar tensor (TensorFlow 2); None if it has neither."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    from tensorboard.util.tensor_util import make_ndarray

    try:
        array = make_ndarray(value.tensor)
        return float(array) if array.shape == () and array.dtype.kind in "fiub" else None
    except (TypeError, ValueError):
        return None


def _settings(value: Any) -> dict[str, Any]:
    if value.tag == _HPARAMS:
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
        hparams = sorted(data.session_start_info.hparams.items())  # protobuf maps have no order
        return {name: _as_integer(getattr(each, each.WhichOneof("kind") or "string_value")) for name, each in hparams}
    if value.WhichOneof("value") != "tensor" or value.metadata.plugin_data.plugin_name != "text":
        return {}
    text = b"".join(value.tensor.string_val).decode("utf-8", "replace")
    if text.startswith("|param|value|"):
        cells = [line.strip("|").split("|", 1) for line in text.splitlines()[2:]]
        return {cell[0]: _typed(cell[1]) for cell in cells if len(cell) == 2}
    if value.tag.removesuffix("/text_summary") == "args":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}
    return {}


def _as_integer(value: Any) -> Any:
    """Return a whole number as an integer, because the hparams plugin stores only floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _typed(text: str) -> Any:
    try:
        value = parse_foreign(text)
    except ValueError:
        return one_line(text, 500)
    return value if isinstance(value, bool | int | float | str) else text
