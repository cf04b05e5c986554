"""Event files for TensorBoard, made from `metrics.parquet` on demand.

A stage logs into one Parquet file; writing each number for TensorBoard as well was 85% of the cost of logging. The
events of a stage are in `<folder>/<study>/<variant>/seed <n>/<stage>/`, with a record of their source. If the metrics
have grown, the new points are appended; if they differ, after a stage ran again say, everything is rewritten.
TensorBoard follows both while it runs.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.process import alone
from ablation.contract.reading import read_json
from ablation.contract.status import altered, read_state
from ablation.plan.collected import PLAN_FILE
from ablation.plan.plan_file import PlanFile, read_plan

NOTE = "made_from.json"
Point = tuple[int, str, float]  # step, name, value


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
        with alone(folder / ".lock"):
            written = [where for where, stage in wanted.items() if _bring_up_to_date(stage, folder / where)]
            for note in folder.glob(f"{study or '*'}/*/*/*/{NOTE}"):
                if note.parent.relative_to(folder) not in written:  # a removed variant
                    shutil.rmtree(note.parent)
    except OSError as error:
        raise TrackerError(f"{folder}: cannot be written ({error.strerror}); use --output DIR") from error
    if not written:
        raise ConfigError(results, "metrics.parquet", study, "no stage has logged anything yet", "run one that trains")
    return len(written)


def _places(plan: PlanFile, study: str | None) -> dict[Path, str]:
    """Return {place of the events: key of the stage}, each stage once."""
    places: dict[str, Path] = {}
    for entry in plan.studies:
        if study in (None, entry.name):
            for run in entry.runs:
                for stage, key in run.stages.items():
                    places.setdefault(key, Path(entry.name, run.variant, f"seed {run.seed}", stage))
    return {where: key for key, where in places.items()}


def _bring_up_to_date(stage: Path, folder: Path) -> bool:
    """Bring a stage's event file up to date with its metrics; return whether it has any."""
    state = read_state(stage)
    if state.state == "corrupt":  # a pipe, say, on which we must not block
        return False
    try:
        file_stat = (stage / "metrics.parquet").stat()
        source = [file_stat.st_mtime_ns, file_stat.st_size, file_stat.st_ino]
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
    file, size, written = folder / note["file"], note["bytes"], note["rows"]
    if written > len(rows) or note["digest"] != _digest(rows[:written]) or not file.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Another name, so that a running TensorBoard sees a new file.
        file, size, written = folder / f"events.out.tfevents.{source[0] // 10**9}.{source[2]}", 0, 0
    new = encode_points(rows[written:], source[0] / 1e9, begin=size == 0)
    with file.open("ab") as events:
        events.truncate(size)  # left by a killed predecessor
        events.write(new)
    new_note = {
        "source": source,
        "file": file.name,
        "bytes": size + len(new),
        "rows": len(rows),
        "digest": _digest(rows),
    }
    write_text(folder / NOTE, json.dumps(new_note))
    return True


def _read_note(folder: Path) -> dict[str, Any]:
    nothing = {"source": None, "file": "", "bytes": 0, "rows": 0, "digest": ""}
    try:
        note = read_json(folder / NOTE)
    except (OSError, ValueError):
        return nothing
    return note if isinstance(note, dict) and note.keys() == nothing.keys() else nothing


def _digest(rows: Sequence[Point]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def encode_points(rows: Sequence[Point], when: float, *, begin: bool) -> bytes:
    """Return the records of (step, name, value) rows, of the time `when` (seconds since the epoch).

    begin: the first record of a file, which says what it is, comes before them.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    writer = RecordWriter(content)
    if begin:
        writer.write(Event(wall_time=when, file_version="brain.Event:2").SerializeToString())
    event = Event(wall_time=when)
    point = event.summary.value.add()
    for event.step, point.tag, value in rows:
        point.simple_value = value if value is not None else float("nan")
        writer.write(event.SerializeToString())
    return content.getvalue()
