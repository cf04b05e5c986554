"""Reader of Inspect's logs: `.eval` (a zip with one member for each sample) and `.json`.

An item is a sample, named by its id. The members are unpacked one at a time. inspect_ai's own reader is not used,
because importing it takes longer than reading a log.
"""

import json
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json
from ablation.readers.sheet import CUT_OFF, Facts, ItemText, Sample, Sheet, Wanted, json_start, sample_sheets

_LARGEST_JSON = 256 << 20
_MOST_MEMBERS = 1_000_000
_FREE, _LARGEST_RATIO = 1 << 30, 100  # bytes that any archive may unpack to, and so many times its own length
# As inspect_ai's value_to_float reads them.
_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_RETRY = (
    "run `inspect eval-retry`, or remove the log; if the task has a complete log, pass --latest to leave this one out"
)
_ZSTANDARD = 93
_DAMAGE = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def recognises(path: Path) -> bool:
    """Return whether a file is a log of Inspect, by its suffix `.eval` or the first keys of its JSON."""
    start = json_start(path)
    return path.suffix == ".eval" or (start.lstrip()[:1] == b"{" and b'"eval"' in start and b'"status"' in start)


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield a `Sheet` with the values of a log from the scorer `wanted.metric`, by default the first scorer.

    Raises ConfigError if the log is invalid, its evaluation did not finish, or it lacks what `wanted` names.
    """
    with _opened(path) as (header, rows):
        task = str(header.get("eval", {}).get("task", path.stem))
        if not wanted.wants(task):
            return
        if (status := header.get("status")) != "success":
            raise ConfigError(path, "status", status, "the evaluation did not finish", _RETRY)
        remarks: list[str] = []
        samples = _samples(rows, task, remarks.append)
        facts = partial(_facts, header, remarks)
        task_sheets = list(sample_sheets(path, wanted, samples, facts, partial(_again, path, task)))
    if not task_sheets:
        raise ConfigError(path, "samples", None, "the log holds no samples", "evaluate without --no-log-samples")
    yield from task_sheets


def _again(path: Path, task: str) -> Iterator[Sample]:
    with _opened(path) as (_, rows):
        yield from _samples(rows, task, lambda _: None)


class Attempt(NamedTuple):
    """One attempt at a task: `inspect eval-retry` keeps the id of the task, but a new `inspect eval` does not."""

    task_id: str
    created: str
    status: str
    task: str
    model: str

    @property
    def ended(self) -> bool:
        """Return whether all samples were evaluated."""
        return self.status == "success"


def attempt(path: Path) -> Attempt | None:
    """Return the attempt at a task that a log records; None if the log is damaged or has no task id."""
    try:
        if path.suffix == ".json":
            start = json_start(path, 1 << 16).decode("utf-8", "replace")
            names = "|".join(Attempt._fields)
            fields = dict(re.findall(rf'"({names})"\s*:\s*"([^"]*)"', start)[::-1])  # the first of each
        else:
            with zipfile.ZipFile(path) as archive:
                ended = "header.json" in archive.namelist()
                header = json.loads(_unpack(archive, "header.json" if ended else "_journal/start.json"))
            fields = header["eval"] | {"status": header["status"] if ended else "started"}
        task_id, created, status = (str(fields[name]) for name in ("task_id", "created", "status"))
        return Attempt(task_id, created, status, str(fields.get("task")), str(fields.get("model")))
    except (*_DAMAGE, KeyError, TypeError):  # reading it says why
        return None


@contextmanager
def _opened(path: Path) -> Iterator[tuple[dict[str, Any], Iterator[dict[str, Any]]]]:
    """Yield a log's header and an iterator over its samples; a zip is opened only once, for speed."""
    try:
        if path.suffix == ".json":
            log = read_json(path, _LARGEST_JSON)
            yield log, iter(log.get("samples") or ())
            return
        with zipfile.ZipFile(path) as archive:
            _check_size(path, archive)
            yield json.loads(_unpack(archive, "header.json")), _members(path, archive)
    except KeyError:
        raise ConfigError(path, "header.json", None, "is missing, so the evaluation did not finish", _RETRY) from None
    except _DAMAGE as error:
        smaller = "convert the log with `inspect log convert --to eval`; .eval files are read sample by sample"
        remedy = smaller if "bytes long" in str(error) else CUT_OFF
        raise ConfigError(path, "", None, f"cannot be read ({error})", remedy) from None


def _check_size(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise ConfigError for an archive with too many or too large members, which would fill the memory."""
    members = archive.infolist()
    total, largest = sum(member.file_size for member in members), max((m.file_size for m in members), default=0)
    most = _FREE + _LARGEST_RATIO * path.stat().st_size
    if len(members) > _MOST_MEMBERS or largest > _LARGEST_JSON or total > most:
        content = f"{len(members):,} members ({total >> 20:,} MiB in total, {largest >> 20:,} MiB in the largest)"
        bound = f"{_MOST_MEMBERS:,} members, {most >> 20:,} MiB in total and {_LARGEST_JSON >> 20} MiB for one member"
        remedy = "evaluate in several parts with `inspect eval --limit`"
        raise ConfigError(path, "", None, f"unpacks to {content}; the limits are {bound}", remedy)


def _members(path: Path, archive: zipfile.ZipFile) -> Iterator[dict[str, Any]]:
    names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
    for name in dict.fromkeys(names):  # a retried sample is written again: the last one counts
        try:
            yield json.loads(_unpack(archive, name))
        except _DAMAGE as error:
            raise ConfigError(path, name, None, f"cannot be read ({error})", CUT_OFF) from None


def _unpack(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the content of a member; Arrow unpacks Zstandard, which zipfile can do only from Python 3.14 on."""
    member = archive.getinfo(name)
    if member.compress_type != _ZSTANDARD:
        return archive.read(member)
    import pyarrow as pa

    handle = archive.fp
    assert handle is not None
    handle.seek(member.header_offset)
    header = handle.read(30)  # the member's own header: its name and extra field lie between it and the data
    if header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"the zip file's directory gives a wrong offset for {name}")
    handle.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    packed = handle.read(member.compress_size)
    unpacked = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
    content = bytes(unpacked.read(member.file_size + 1))  # no more than the directory says, and was checked
    if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"{name} is damaged")
    return content


def _samples(rows: Iterator[dict[str, Any]], task: str, remark: Callable[[str], None]) -> Iterator[Sample]:
    scored_with_error = 0
    for row in rows:
        completion = str((row.get("output") or {}).get("completion", ""))
        text = ItemText(_words(row.get("input")), _words(row.get("target")), completion)
        values = {name: _number(value) for name, value in _flat(row.get("scores") or {}).items()}
        choices = tuple(map(str, row.get("choices") or ()))
        error = row.get("error")
        reason = str(error.get("message", error) if isinstance(error, dict) else error) if error else None
        if reason is None and any(isinstance(value, float) and math.isnan(value) for value in values.values()):
            reason = "the scorer gave the sample no score"
        scored_with_error += bool(error and values)
        yield Sample(task, str(row.get("id")), values, text, int(row.get("epoch", 1)), choices, reason)
    if scored_with_error:
        remark(f"{task}: the scores of samples that ended with an error are used ({scored_with_error})")


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return {scorer: value}, or {`scorer/key`: value} for a scorer with several values."""
    values: dict[str, Any] = {}
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            values |= {f"{scorer}/{key}": inner for key, inner in value.items()}
        else:
            values[scorer] = value
    return values


def _number(value: Any) -> Any:
    """Return the number that a text such as `0.5`, `C` or `yes` means; return any other score unchanged."""
    if not isinstance(value, str):
        return value
    from_word = _WORDS.get(value, _WORDS.get(value.lower()) if len(value) > 1 else None)
    try:
        return float(value) if from_word is None else from_word
    except ValueError:
        return value


def _words(text: Any) -> str:
    """Return the text of an input or target, which is a string, or a list of messages or strings."""
    if isinstance(text, list):
        return "\n".join(_words(part) for part in text)
    if isinstance(text, dict):
        content = text.get("content", text.get("text", ""))
        return f"{text['role']}: {_words(content)}" if "role" in text else _words(content)
    return "" if text is None else str(text)


def _facts(header: dict[str, Any], remarks: Sequence[str], subset: str, metric: str) -> Facts:
    about, scorer = header.get("eval", {}), metric.split("/", maxsplit=1)[0]
    metrics: dict[str, Any] = {}
    for score in (header.get("results") or {}).get("scores") or ():
        if metric in (score.get("name"), f"{scorer}/{score.get('name')}"):
            metrics = {name: entry.get("value") for name, entry in (score.get("metrics") or {}).items()}
            break
    settings = {key: about[key] for key in ("model", "model_args", "task_args") if about.get(key)}
    version = about.get("task_version")
    return Facts(
        tool="Inspect",
        version=None if version is None else str(version),
        reported=next((metrics[name] for name in ("accuracy", "mean") if name in metrics), None),
        stderr=metrics.get("stderr"),
        larger_is_better=True if "accuracy" in metrics else None,
        settings=settings,
        remarks=tuple(remarks),
    )
