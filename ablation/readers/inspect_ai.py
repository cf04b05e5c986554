"""Logs of Inspect: `.eval` (a zip with one member for each sample) and `.json`. An item is a sample, by its id.

The members are unpacked one at a time. inspect_ai's own reader does the same; importing it takes longer than reading.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json
from ablation.readers.sheet import Facts, ItemText, Sample, Sheet, Wanted, read_again, sample_sheets

FILES = ("*.eval",)
_LARGEST_JSON = 256 << 20
# As inspect_ai's value_to_float reads them.
_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_WHOLE = "is the file whole, and of this format?"
_ZSTANDARD = 93
_DAMAGE = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def recognises(path: Path) -> bool:
    """Whether it is a log: by the suffix `.eval`, or by how the JSON begins."""
    if path.suffix == ".json":
        with path.open("rb") as handle:
            start = handle.read(4096)
        return start.lstrip().startswith(b"{") and b'"eval"' in start and b'"status"' in start
    return path.suffix == ".eval"


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Read one log: the scorer wanted (`--metric`), else the first.

    Raises ConfigError if the log is damaged or its evaluation did not end, and as `sample_sheets`.
    """
    header, rows = _open(path)
    task = str(header.get("eval", {}).get("task", path.stem))
    if not wanted.wants(task):
        return
    if (status := header.get("status")) != "success":
        raise ConfigError(path, "status", status, "the evaluation did not end", "run `inspect eval-retry`")
    texts = partial(read_again, lambda: _samples(_open(path)[1], task))
    found = list(sample_sheets(path, wanted, _samples(rows, task), texts, lambda _, metric: _facts(header, metric)))
    if not found:
        raise ConfigError(path, "samples", None, "the log holds none", "evaluate without --no-log-samples")
    yield from found


def _open(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The log's header, and its samples one by one."""
    try:
        if path.suffix == ".json":
            log = read_json(path, _LARGEST_JSON)
            return log, iter(log.get("samples") or ())
        return json.loads(_unpack(path, "header.json")), _members(path)
    except KeyError:
        problem = "is missing: the evaluation did not end"
        raise ConfigError(path, "header.json", None, problem, "run `inspect eval-retry`") from None
    except _DAMAGE as error:
        smaller = "`inspect log convert --to eval` makes what is read sample by sample"
        remedy = smaller if "bytes long" in str(error) else _WHOLE
        raise ConfigError(path, "", None, f"cannot be read ({error})", remedy) from None


def _members(path: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
    for name in dict.fromkeys(names):  # a retried sample is written again: the last one counts
        try:
            yield json.loads(_unpack(path, name))
        except _DAMAGE as error:
            raise ConfigError(path, name, None, f"cannot be read ({error})", _WHOLE) from None


def _unpack(path: Path, name: str) -> bytes:
    """One member. Inspect packs with Zstandard, which Python's zipfile supports from 3.14 on; Arrow is used instead."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(name)
        if member.compress_type != _ZSTANDARD:
            return archive.read(member)
    import pyarrow as pa

    with path.open("rb") as handle:
        handle.seek(member.header_offset)
        header = handle.read(30)  # the member's own header: its name and extra field lie between it and the data
        if header[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("a member is not where the directory says")
        handle.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
        packed = handle.read(member.compress_size)
    content = bytes(pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read())
    if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"{name} is damaged")
    return content


def _samples(rows: Iterator[dict[str, Any]], task: str) -> Iterator[Sample]:
    for row in rows:
        completion = str((row.get("output") or {}).get("completion", ""))
        words = ItemText(_words(row.get("input")), _words(row.get("target")), completion)
        values = {name: _number(value) for name, value in _flat(row.get("scores") or {}).items()}
        choices = tuple(map(str, row.get("choices") or ()))
        yield Sample(task, str(row.get("id")), values, words, int(row.get("epoch", 1)), choices)


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    """{scorer: value}; a scorer of several values gives scorer/key for each."""
    found: dict[str, Any] = {}
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            found |= {f"{scorer}/{key}": inner for key, inner in value.items()}
        else:
            found[scorer] = value
    return found


def _number(value: Any) -> Any:
    """A score as a number, where it is one or a word for one."""
    if not isinstance(value, str):
        return value
    known = _WORDS.get(value, _WORDS.get(value.lower()) if len(value) > 1 else None)
    try:
        return float(value) if known is None else known
    except ValueError:
        return value


def _words(said: Any) -> str:
    """Text of an input or target: a string, or messages and lists of strings."""
    if isinstance(said, list):
        return "\n".join(_words(part) for part in said)
    if isinstance(said, dict):
        content = said.get("content", said.get("text", ""))
        return f"{said['role']}: {_words(content)}" if "role" in said else _words(content)
    return "" if said is None else str(said)


def _facts(header: dict[str, Any], metric: str) -> Facts:
    about, scorer = header.get("eval", {}), metric.split("/", maxsplit=1)[0]
    metrics: dict[str, Any] = {}
    for score in (header.get("results") or {}).get("scores") or ():
        if metric in (score.get("name"), f"{scorer}/{score.get('name')}"):
            metrics = {name: found.get("value") for name, found in (score.get("metrics") or {}).items()}
            break
    settings = {key: about[key] for key in ("model", "model_args", "task_args") if about.get(key)}
    version = about.get("task_version")
    return Facts(
        tool="Inspect",
        version=None if version is None else str(version),
        reported=next((metrics[name] for name in ("accuracy", "mean") if name in metrics), None),
        stderr=metrics.get("stderr"),
        settings=settings,
    )
