"""Store imported runs as files, `results/imported/<study>/`, which `collect` turns into rows.

    study.json                     definition, rules, variants, and which folders count
    <key>/run.json                 what its source states about one run, and the digests of the other files
    <key>/log/metrics.parquet      all metrics of the run, a stage named by the format
    <key>/log/provenance.json      the source of the run
    <key>/outcome/metrics.parquet  its final metrics and the means of its items, the stage `outcome`
    <key>/outcome/items.parquet    its items; each final metric is another item, of protocol `logged`

The key is a digest of the run's content. A folder is written under another name, renamed, and never changed.
`study.json` is replaced last, and a folder that it does not name does not count, so an import that is killed changes
nothing. `merged_metrics` and `merged_items` merge the content of an earlier import with the present log.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, ValidationError

from ablation.config.import_file import ImportFile
from ablation.config.names import Strict
from ablation.contract.atomic import write_json, write_text
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import read_text, sha256
from ablation.contract.rows import LOGGED, LOGGED_VALUE
from ablation.plan.keys import KEY_LENGTH
from ablation.plan.plan_file import PlannedVariant, StudyRecord
from ablation.readers.run import ITEM_ROWS, METRIC_ROWS, State, item_means

FOLDER, MANIFEST, RUN = "imported", "study.json", "run.json"
OUTCOME = "outcome"
_FILES = ("log/metrics.parquet", "log/provenance.json", "outcome/metrics.parquet", "outcome/items.parquet")
_ITEM = ["item", "subset", "protocol", "name"]
_MAX_BYTES = 1 << 30


class Record(Strict):
    """What the source states about an imported run, without its metrics and items."""

    format: str
    source: str
    id: str
    name: str
    config: dict[str, Any]
    seed: int | None
    state: State
    started: str | None
    last_step: int | None
    first_step: int | None = None
    final: int | None = Field(
        default=None, description="The step of the run's final metrics; null means the last step of each metric."
    )
    kept: int | None = Field(default=None, description="The step of the kept model, if it is not the last.")
    prompts: dict[str, str] = Field(default={})

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return (format, source, id), by which a later import finds the run."""
        return self.format, self.source, self.id


class StoredRecord(Record):
    """The content of `run.json`; `files` holds the sha256 digests of the other files."""

    files: dict[str, str]


class PlacedRun(Strict):
    """An imported run with its variant and seed; `key` names its folder, `final` is the step of its final metrics."""

    key: str
    format: str
    source: str
    name: str
    variant: str
    seed: int
    state: State
    started: str | None
    last_step: int | None
    final: int | None = None
    kept: int | None = None

    @property
    def judged_at(self) -> int | None:
        """Return the step of the run's final metrics, which are the last values up to this step."""
        return self.last_step if self.final is None else self.final


class ImportedStudy(Strict):
    """The content of `study.json`."""

    written: ImportFile
    study: StudyRecord
    variants: tuple[PlannedVariant, ...]
    runs: tuple[PlacedRun, ...]

    def text(self) -> str:
        """Return the content as JSON text, which is the same for equal contents."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True) + "\n"


def studies(results: Path) -> list[Path]:
    """Return the folders of imported studies, sorted by name."""
    return sorted(path.parent for path in (results / FOLDER).glob(f"*/{MANIFEST}"))


def read_study(folder: Path) -> ImportedStudy:
    """Return the imported study in a folder. Raises ConfigError if `study.json` is missing or cannot be read."""
    path = folder / MANIFEST
    remedy = "restore the file, or delete the folder and import again"
    try:
        return ImportedStudy.model_validate_json(read_text(path, _MAX_BYTES))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(path, ".".join(map(str, first["loc"])), None, first["msg"], remedy) from None
    except (OSError, ValueError) as error:
        raise ConfigError(path, "", None, f"cannot be read ({error})", remedy) from None


def read_record(folder: Path) -> StoredRecord:
    """Return the record of an imported run. Raises TrackerError if its files are missing or have changed."""
    try:
        record = StoredRecord.model_validate_json(read_text(folder / RUN, _MAX_BYTES))
        digests = {name: sha256(folder / name) for name in record.files}
    except (OSError, ValueError) as error:
        raise TrackerError(f"{folder}: cannot be read ({error})") from None
    for name, digest in digests.items():
        if digest != record.files[name]:
            raise TrackerError(f"{folder / name}: the content has changed since the import")
    return record


def read_rows(folder: Path) -> tuple[pa.Table, pa.Table | None]:
    """Return the stored metrics and items of a run, as `METRIC_ROWS` and `ITEM_ROWS`; None if it has no items."""
    metrics = pq.read_table(folder / "log/metrics.parquet", schema=METRIC_ROWS)
    items = pq.read_table(folder / "outcome/items.parquet")
    if "cluster" not in items.column_names:
        items = items.append_column("cluster", pa.nulls(items.num_rows, pa.string()))
    measured = items.filter(pc.not_equal(items["protocol"], LOGGED)).cast(ITEM_ROWS)
    return metrics, measured if measured.num_rows else None


def key_of_run(record: Record, metrics: pa.Table, items: pa.Table | None) -> str:
    """Return the name of a run's folder, which is a digest of the run's record and of its rows in their order."""
    digest = hashlib.sha256(record.model_dump_json().encode())
    for table in (metrics, items):
        for column in () if table is None else table.columns:
            for batch in pa.table([column.combine_chunks()], names=["c"]).to_batches():
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch)
                digest.update(sink.getvalue())
    return digest.hexdigest()[:KEY_LENGTH]


def write_run(study: Path, key: str, record: Record, metrics: pa.Table, items: pa.Table | None) -> None:
    """Write the complete folder of a run, unless an intact one exists. Raises TrackerError if it cannot be written."""
    folder = study / key
    try:
        read_record(folder)
        return
    except TrackerError:
        pass
    aside = study / f".{os.getpid()}.tmp.{key}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        for part in ("log", OUTCOME):
            (aside / part).mkdir(parents=True)
        pq.write_table(metrics, aside / "log/metrics.parquet")
        source = {"imported": {"format": record.format, "from": record.source, "run": record.id}}
        write_json(aside / "log/provenance.json", source)
        last = finals(metrics, record.final)
        evaluated = ITEM_ROWS.empty_table() if items is None else items
        means = _means(evaluated, last, record.last_step or 0)
        pq.write_table(pa.concat_tables([last, means]), aside / "outcome/metrics.parquet")
        pq.write_table(_with_logged(evaluated, last), aside / "outcome/items.parquet")
        files = {name: sha256(aside / name) for name in _FILES}
        write_text(aside / RUN, StoredRecord(**record.model_dump(), files=files).model_dump_json(indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)  # a damaged one
        aside.rename(folder)
    except OSError as error:
        problem = f"{folder}: cannot be written ({error.strerror or error}), so nothing was imported"
        raise TrackerError(f"{problem}; free space, or repair the folder") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_unnamed(study: Path, keys: set[str]) -> None:
    """Delete all folders of runs except those with the given keys, and then the study's folder if it is empty."""
    for folder in study.iterdir() if study.is_dir() else ():
        if folder.is_dir() and folder.name not in keys:
            shutil.rmtree(folder, ignore_errors=True)
    if study.is_dir() and not any(study.iterdir()):
        study.rmdir()


def finals(metrics: pa.Table, step: int | None) -> pa.Table:
    """Return each metric's last row up to a step; its very last row if the metric begins later or the step is None."""
    rows = list(zip(metrics["name"].to_pylist(), metrics["step"].to_pylist(), strict=True))
    places = {name: place for place, (name, _) in enumerate(rows)}  # rows stand by step
    if step is not None:
        places |= {name: place for place, (name, at) in enumerate(rows) if at <= step}
    return metrics.take(pa.array(sorted(places.values()), pa.int64()))


def _means(items: pa.Table, last: pa.Table, step: int) -> pa.Table:
    """Return the means of items as metrics at a step, except means that are among the run's `last` metrics."""
    means = item_means(items)
    names = sorted(means.keys() - set(last["name"].to_pylist()))
    return pa.table([[step] * len(names), names, [means[name] for name in names]], schema=METRIC_ROWS)


def _with_logged(items: pa.Table, last: pa.Table) -> pa.Table:
    """Return the items and each final metric as a further item; drop the column `cluster` if no item has a cluster."""
    count = last.num_rows
    logged = pa.table(
        [["final"] * count, last["name"], [LOGGED] * count, [LOGGED_VALUE] * count, last["value"], ["final"] * count],
        schema=ITEM_ROWS,
    )
    if items["cluster"].null_count == items.num_rows:
        return sorted_items(pa.concat_tables([logged, items])).drop_columns(["cluster"])
    clusters = pc.coalesce(items["cluster"], items["item"])  # an item without a cluster is one of its own
    place = items.schema.get_field_index("cluster")
    return sorted_items(pa.concat_tables([logged, items.set_column(place, "cluster", clusters)]))


def steps_judged(runs: Sequence[PlacedRun]) -> list[str]:
    """Return a note for each format whose runs end at different steps or have final metrics of an earlier step."""
    lines = []
    for kind in sorted({run.format for run in runs}):
        last = [run for run in runs if run.format == kind and run.state == "finished" and run.judged_at is not None]
        steps = [run.judged_at for run in last]
        usual = max(set(steps), key=lambda step: (steps.count(step), step), default=None)
        others = [run for run in last if run.judged_at != usual]
        chosen = [run for run in last if run.final is not None]
        if chosen:
            kept = any(run.final == run.kept for run in chosen)
            where = f"the step of the kept model, {usual}" if kept else f"step {usual}"
            if others:
                where = f"{'the steps of kept models' if kept else 'different steps'} ({_at_steps(chosen)})"
            lines.append(f"final metrics are taken at {where}; pass --at last for the last step")
        elif others:
            ends = f"most end at step {usual}, but {_at_steps(others)}"
            common = "pass --at common for the last step that all runs logged"
            lines.append(f"runs end at different steps: {ends}; {common}")
    return lines


def _at_steps(runs: Sequence[PlacedRun]) -> str:
    return listed([f"{run.variant} seed {run.seed} at {run.judged_at}" for run in runs], 5)


def merged_metrics(earlier: pa.Table, logged: pa.Table) -> pa.Table:
    """Return rows of `METRIC_ROWS`: those of the present log, and those that only an earlier import has.

    Rows that are missing because the log was cut short, or restarted by a resumed run, are thus kept. If both have
    different values at a step, the run was resumed from an earlier step, so from there on only the present log counts.
    """
    if earlier.num_rows == 0:
        return sorted_metrics(logged)
    keys = ["step", "name"]
    both = earlier.join(logged.rename_columns([*keys, "now"]), keys=keys, join_type="inner").combine_chunks()
    was, now = both["value"].to_numpy(), both["now"].to_numpy()
    differ = ~((was == now) | (np.isnan(was) & np.isnan(now)))
    rest = earlier.join(logged.select(keys), keys=keys, join_type="left anti").select(METRIC_ROWS.names)
    if differ.any():
        rest = rest.filter(pc.less(rest["step"], int(both["step"].to_numpy()[differ].min())))
    return sorted_metrics(pa.concat_tables([rest.cast(METRIC_ROWS), logged]))


def merged_items(earlier: pa.Table | None, evaluated: pa.Table | None) -> pa.Table | None:
    """Return rows of `ITEM_ROWS`: the present items, and earlier ones of subsets and protocols that are now missing."""
    if earlier is None or evaluated is None:
        return evaluated if earlier is None else earlier
    place = ["subset", "protocol"]
    rest = earlier.join(evaluated.group_by(place).aggregate([]), keys=place, join_type="left anti")
    return sorted_items(pa.concat_tables([rest.select(ITEM_ROWS.names).cast(ITEM_ROWS), evaluated]))


def sorted_metrics(metrics: pa.Table) -> pa.Table:
    """Return rows of `METRIC_ROWS`, sorted by step, then by name."""
    return metrics.sort_by([("step", "ascending"), ("name", "ascending")])


def sorted_items(items: pa.Table) -> pa.Table:
    """Return rows of `ITEM_ROWS` in an order that does not depend on the source."""
    return items.sort_by([(name, "ascending") for name in ("protocol", "subset", "name", "item")])


def twice(items: pa.Table) -> str | None:
    """Return a sentence about an item that has several values of one name; None if every item has one value."""
    counted = items.group_by(_ITEM).aggregate([([], "count_all")])
    for row in counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).to_pylist():
        return f"item {row['item']} of {row['subset']} has {row['count_all']} values of {row['name']}"
    return None
