"""Runs in TensorBoard's event files: one run per folder that holds some.

Files are read record by record, so that no point is left out: TensorBoard's own EventAccumulator keeps 10,000 of each
tag. A file that was begun after another had ended and logs the same tags is a restart: from its first step on it
replaces what was logged before. Files that were open at the same time are two writers of one run, and both count.

The Trainer of Hugging Face opens a folder `runs/<date>_<host>` at each start, and `add_hparams` one called by a time
stamp: both belong to the run above them, but time stamps with different settings are a run each if nothing above them
has scalars. Settings come from the hparams plugin, the Trainer's text `args`, or a table `|param|value|`, as CleanRL
writes it.
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablation.config.formats import FORMATS
from ablation.config.yaml_io import parse_foreign
from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line, regular
from ablation.readers.run import ImportedRun, Problem, metric_table, name_below
from ablation.readers.walk import files_below

_START_OF_TRAINER = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*")
_TIME_STAMP = re.compile(r"\d{9,}\.\d+")
_HPARAMS = "_hparams_/session_start_info"
_LARGEST_RECORD = 1 << 30


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs at or below a path: an event file or a folder. Raises ConfigError where there are none."""
    root = path if path.is_dir() else path.parent
    files = files_below(path, FORMATS["tensorboard"].patterns, problem) if path.is_dir() else [path]
    if not files or (path.is_file() and "tfevents" not in path.name):
        raise ConfigError(path, "", None, "holds no event file", "name a folder with files *tfevents*, or one above")
    of_trainer = {file.parent.parent for file in files if _is_of_trainer(file)}
    runs: dict[Path, list[Path]] = {}
    for file in files:
        runs.setdefault(_folder_of_run(file, root, of_trainer), []).append(file)
    for folder, found in runs.items():
        parts = [part for file in found if (part := _read_file(file, problem)).first is not None]
        if not parts:
            problem(f"{folder}: its event files hold no event")
            continue
        parts.sort(key=lambda part: (part.first, part.last, part.file.name))
        for place, own in _runs_of(folder, parts, problem).items():
            yield ImportedRun(
                source=place,
                id="events",
                name=name_below(root, place),
                config=_config(own),
                started=datetime.fromtimestamp(own[0].first or 0.0, UTC).isoformat(timespec="seconds"),
                metrics=metric_table(_joined(own)),
            )


def _runs_of(folder: Path, parts: list["_Part"], problem: Problem) -> dict[Path, list["_Part"]]:
    """Return the runs of a log: its calls of `add_hparams` if they differ and it has no curves, else itself."""
    calls: dict[Path, list[_Part]] = {}
    for part in parts:
        if _TIME_STAMP.fullmatch(part.file.parent.name):
            calls.setdefault(part.file.parent, []).append(part)
    if len({str(_config(own)) for own in calls.values()}) < 2:
        return {folder: parts}
    if not any(part.values for part in parts if part.file.parent not in calls):
        return calls
    if len({place.parent for place in calls}) < len(calls):  # else each is of another start of the Trainer
        problem(f"{folder}: has curves, so its {len(calls)} add_hparams are one run; the last settings count")
    return {folder: parts}


def _folder_of_run(file: Path, root: Path, of_trainer: set[Path]) -> Path:
    folder = file.parent
    if _TIME_STAMP.fullmatch(folder.name) and folder != root:
        folder = folder.parent
    if folder.parent in of_trainer and folder != root and _START_OF_TRAINER.fullmatch(folder.name):
        folder = folder.parent.parent
    return folder


def _is_of_trainer(file: Path) -> bool:
    """Whether a log `runs/<date>_<host>/*` begins with the Trainer's settings; torch's SummaryWriter's does not."""
    if not _START_OF_TRAINER.fullmatch(file.parent.name) or file.parent.parent.name != "runs":
        return False
    with regular(file).open("rb") as log:
        return b"args/text_summary" in log.read(1 << 16)


@dataclass
class _Part:
    """The log of one file: values in the order of the file, times in seconds since the epoch."""

    file: Path
    first: float | None = None
    last: float = 0.0
    values: list[tuple[int, str, float]] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)  # per tag, its first step
    config: dict[str, Any] = field(default_factory=dict)


def _config(parts: Iterable[_Part]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.config.items()}


def _joined(parts: Iterable[_Part]) -> Iterable[tuple[int, str, float]]:
    """Return the values of a run's files, with restarts in place of the values that they replaced."""
    known: list[tuple[int, str, float]] = []
    ended: dict[str, float] = {}  # per tag, when the last file that logged it ended
    for part in parts:
        again = [start for tag, start in part.starts.items() if tag in ended and ended[tag] <= (part.first or 0.0)]
        if again and not _TIME_STAMP.fullmatch(part.file.parent.name):  # add_hparams logs its metrics at step 0
            restart = min(again)
            known = [row for row in known if row[0] < restart]
        known += part.values
        ended |= dict.fromkeys(part.starts, part.last)
    return known


def _read_file(path: Path, problem: Problem) -> _Part:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    part, damaged = _Part(path), 0
    for record in _records(path, problem):
        event = Event()
        try:
            event.ParseFromString(record)
        except Exception:  # protobuf's own error, whose class depends on its version
            damaged += 1
            continue
        part.first = event.wall_time if part.first is None else part.first
        part.last = max(part.last, event.wall_time)
        if event.WhichOneof("what") == "session_log" and event.session_log.status == SessionLog.START and event.step:
            part.values = [row for row in part.values if row[0] < event.step]
        for value in event.summary.value if event.WhichOneof("what") == "summary" else ():
            number = _scalar(value)
            if number is None:
                try:
                    part.config |= _settings(value)
                except Exception:  # likewise
                    damaged += 1
                continue
            part.starts.setdefault(value.tag, event.step)
            part.values.append((event.step, value.tag, number))
    if damaged:
        problem(f"{path}: {damaged} damaged records are left out")
    return part


def _records(path: Path, problem: Problem) -> Iterator[bytes]:
    """Yield the records (length, its sum, data, its sum) up to the first that is cut off or does not add up."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    place = 0
    with regular(path).open("rb") as file:
        while head := file.read(12):
            size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else 0
            whole = len(head) == 12 and struct.unpack("<I", head[8:])[0] == masked_crc32c(head[:8])
            data = file.read(size) if whole and size < _LARGEST_RECORD else b""
            tail = file.read(4)
            if not whole or len(data) < size or len(tail) < 4:
                rest = path.stat().st_size - place
                problem(f"{path}: cut off or damaged after byte {place}; the last {rest} bytes are not read")
                return
            if struct.unpack("<I", tail)[0] == masked_crc32c(data):
                yield data
            else:
                problem(f"{path}: the record at byte {place} is damaged and left out")
            place += 12 + size + 4


def _scalar(value: Any) -> float | None:
    """Return the number of a summary: a plain one from TensorFlow 1 and torch, a scalar tensor from TensorFlow 2."""
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
    """Return the settings that a summary holds, or nothing."""
    if value.tag == _HPARAMS:
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
        found = sorted(data.session_start_info.hparams.items())  # protobuf maps have no order
        return {name: _whole(getattr(each, each.WhichOneof("kind") or "string_value")) for name, each in found}
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


def _whole(value: Any) -> Any:
    """Return a whole number as an integer: hparams has only floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _typed(text: str) -> Any:
    try:
        value = parse_foreign(text)
    except ValueError:
        return one_line(text, 500)
    return value if isinstance(value, bool | int | float | str) else text
