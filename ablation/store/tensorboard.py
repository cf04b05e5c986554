"""Event files for TensorBoard, made from `metrics.parquet` on demand.

A stage logs into one Parquet file; writing each number for TensorBoard as well was 85% of the cost of logging. The
events of a stage are in `<folder>/<study>/<variant>/seed <n>/<stage>/`, with a record of their source. If the metrics
have grown, the new points are appended; if they differ, after a stage ran again say, everything is rewritten.
TensorBoard follows both while it runs.

The format: records of (length, its checksum, data, its checksum), the data an `Event` of TensorFlow's protocol buffers.
"""

import fcntl
import hashlib
import json
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import read_json
from ablation.contract.status import altered, read_state
from ablation.plan.collected import PLAN_FILE
from ablation.plan.plan_file import PlanFile, read_plan

NOTE = "made_from.json"
_VERSION = b"brain.Event:2"  # the first record of an event file
_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def write_events(results: Path, folder: Path, study: str | None = None) -> int:
    """Bring the event files in `folder` up to date with the stages' metrics; return how many stages have some.

    A stage that several runs share is there once, under the first of them. Raises ConfigError where the study is not in
    the plan or no stage has logged, TrackerError where the folder cannot be written.
    """
    plan = read_plan(results / PLAN_FILE)
    places = plan.folders(results)
    names = [entry.name for entry in plan.studies]
    if study is not None and study not in names:
        raise ConfigError(results / PLAN_FILE, "studies", study, "it is not in the plan", f"one of {', '.join(names)}")
    wanted = {where: places[key] for where, key in _places(plan, study).items()}
    try:
        with _alone(folder):
            written = [where for where, stage in wanted.items() if _bring_up_to_date(stage, folder / where)]
            for note in folder.glob(f"{study or '*'}/*/*/*/{NOTE}"):
                if note.parent.relative_to(folder) not in written:  # a removed variant
                    shutil.rmtree(note.parent)
    except OSError as error:
        raise TrackerError(f"{folder}: cannot be written ({error.strerror}); use --to FOLDER") from error
    if not written:
        raise ConfigError(results, "metrics.parquet", study, "no stage has logged anything yet", "run one that trains")
    return len(written)


def _places(plan: PlanFile, study: str | None) -> dict[Path, str]:
    """Return {place of the events: key of the stage}, each stage once."""
    found: dict[str, Path] = {}
    for entry in plan.studies:
        if study in (None, entry.name):
            for run in entry.runs:
                for stage, key in run.stages.items():
                    found.setdefault(key, Path(entry.name, run.variant, f"seed {run.seed}", stage))
    return {where: key for key, where in found.items()}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others from writing into the folder meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bring_up_to_date(stage: Path, folder: Path) -> bool:
    """Bring a stage's event file up to date with its metrics; return whether it has any."""
    state = read_state(stage)
    if state.state == "corrupt":  # a pipe, say, on which we must not block
        return False
    try:
        found = (stage / "metrics.parquet").stat()
        source = [found.st_mtime_ns, found.st_size, found.st_ino]
        note = _read_note(folder)
        if note["source"] == source:
            return True
        if altered(stage, state, ["metrics.parquet"]):
            return False
        table = pq.ParquetFile(stage / "metrics.parquet").read(columns=["step", "name", "value"])
    except (OSError, ValueError):  # none yet, or a damaged one, which `collect` reports
        return False
    points = zip(*(column.to_pylist() for column in table.columns), strict=True)
    rows = [point for point in points if None not in point[:2]]  # a value that is null is NaN
    if not rows:
        return False
    file, size, known = folder / note["file"], note["bytes"], note["rows"]
    if known > len(rows) or note["digest"] != _digest(rows[:known]) or not file.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Another name, so that a running TensorBoard sees a new file.
        file, size, known = folder / f"events.out.tfevents.{source[0] // 10**9}.{source[2]}", 0, 0
    when = source[0] / 1e9
    new = encode_records(([_event(when, _field(3, _VERSION))] if not size else []) + encode_points(rows[known:], when))
    with file.open("ab") as events:
        events.truncate(size)  # left by a killed predecessor
        events.write(new)
    words = {"source": source, "file": file.name, "bytes": size + len(new), "rows": len(rows), "digest": _digest(rows)}
    write_text(folder / NOTE, json.dumps(words))
    return True


def _read_note(folder: Path) -> dict[str, Any]:
    nothing = {"source": None, "file": "", "bytes": 0, "rows": 0, "digest": ""}
    try:
        note = read_json(folder / NOTE)
    except (OSError, ValueError):
        return nothing
    return note if isinstance(note, dict) and note.keys() == nothing.keys() else nothing


def _digest(rows: Sequence[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def encode_points(rows: Sequence[tuple[int, str, float]], when: float) -> list[bytes]:
    """Return the events of (step, name, value) rows, one each, of the time `when` (seconds since the epoch)."""
    with np.errstate(over="ignore"):  # TensorBoard's numbers have single precision
        values = np.array([value for _, _, value in rows], np.float64).astype("<f4").tobytes()
    tags: dict[str, bytes] = {}
    events = []
    for place, (step, name, _) in enumerate(rows):
        tag = tags.get(name)
        if tag is None:
            tag = tags[name] = _field(1, name.encode())
        value = tag + b"\x15" + values[4 * place : 4 * place + 4]  # Value: tag = 1, simple_value = 2
        events.append(_event(when, b"\x10" + _varint(step % 2**64) + _field(5, _field(1, value))))
    return events


def encode_records(events: Sequence[bytes]) -> bytes:
    """Return the content of an event file that holds these events."""
    lengths = [struct.pack("<Q", len(event)) for event in events]
    heads, tails = _checksums(lengths), _checksums(events)
    parts = zip(lengths, heads, events, tails, strict=True)
    return b"".join(part for length, head, event, tail in parts for part in (length, head, event, tail))


def _event(when: float, rest: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", when) + rest


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes in the wire format."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    groups = []
    while value >= 128:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _checksums(texts: Sequence[bytes]) -> list[bytes]:
    """Return each text's masked CRC-32C. All texts of one length at once: Python alone takes 20 times as long."""
    table, result = _table(), [b""] * len(texts)
    places: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(len(text), []).append(place)
    for length, found in places.items():
        columns = np.frombuffer(b"".join(texts[place] for place in found), np.uint8).reshape(len(found), length).T
        crc = np.full(len(found), 0xFFFFFFFF, np.uint32)
        for column in columns:
            crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
        crc = ~crc
        masked = ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype("<u4").tobytes()
        for number, place in enumerate(found):
            result[place] = masked[4 * number : 4 * number + 4]
    return result


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ _POLYNOMIAL, table >> 1).astype(np.uint32)
    return table
