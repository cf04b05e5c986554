"""Evaluations of one run as an imported run: the reader `lm_eval` of a stage that is a command.

    read(path, problem, old) -> Iterator[ImportedRun]        one, of all tasks, metrics and filters below the path

Items are known by lm-eval's `doc_hash`. Subset: the task. Protocol: `lm_eval`. Name: the metric and, where the samples
have several filters, `metric,filter`. Of a task that was evaluated several times, as by a command that was begun again,
the newest file counts.
"""

from collections.abc import Container, Iterator
from pathlib import Path

import pyarrow as pa

from ablation.contract.errors import ConfigError
from ablation.evaluations import lm_eval
from ablation.evaluations.imported import every_value
from ablation.evaluations.sheet import Sheet
from ablation.imports.run import ITEM_ROWS, METRIC_ROWS, ImportedRun, Problem

PROTOCOL = "lm_eval"
_SAMPLES = "samples_*.jsonl"


def read(path: Path, problem: Problem, old: Container[Path] = ()) -> Iterator[ImportedRun]:
    """Yield the run; files in `old` do not count. Raises ConfigError where there are no samples that can be read."""
    files = sorted(file for file in path.rglob(_SAMPLES) if file not in old) if path.is_dir() else [path]
    by_date = sorted(files, key=lambda file: file.name.rpartition("_")[2])
    newest = {lm_eval.task_of(file): file for file in by_date}
    if not newest or not all(map(lm_eval.recognises, newest.values())):
        remedy = "run lm_eval with --log_samples and --output_path"
        raise ConfigError(path, "", None, f"holds no {_SAMPLES} of lm-eval", remedy)
    values = (value for _, file in sorted(newest.items()) for value in every_value(file, problem))
    tables = [_table(name, sheet) for name, sheet in values]
    yield ImportedRun(
        source=path,
        id=PROTOCOL,
        name=path.name,
        config={},
        seed=None,
        state="finished",
        started=None,
        metrics=METRIC_ROWS.empty_table(),
        items=pa.concat_tables(tables),
    )


def _table(name: str, sheet: Sheet) -> pa.Table:
    items = [str(item) for item in sheet.items]
    clusters = [sheet.clusters.get(item, item) for item in items]
    columns = [
        items,
        *([word] * len(items) for word in (sheet.subset, PROTOCOL, name)),
        sheet.values.tolist(),
        clusters,
    ]
    return pa.table(columns, schema=ITEM_ROWS)
