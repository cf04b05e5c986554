"""Reader of what `neptune-exporter` saved of Neptune, versions 2 and 3: for each run, Parquet files in long form.

    <data path>/<project>/<run>_part_<n>.parquet     a row for each value; part 0 is written last

Series of numbers are metrics, and single values are settings, nested by the slashes in their paths. A single `float`
may be a setting or a result, and Neptune does not tell: it is both, as a metric at the last step. What Neptune logged
by itself (`sys`, `monitoring`, `source_code`) is left out, like files, texts and histograms.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.config.dotted import nested
from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line, plain, regular
from ablation.readers.run import ImportedRun, Problem, State, metric_table, shortened

_PART = re.compile(r"(.*)_part_(\d+)\.parquet")
_SETTINGS = ("int", "float", "string", "bool", "datetime", "string_set")  # each in a column `<type>_value`
_TEXTS = ("project_id", "run_id", "attribute_path", "attribute_type", "string_value")
_ROWS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("step", pa.decimal128(18, 6)),
        ("int_value", pa.int64()),
        ("float_value", pa.float64()),
        ("bool_value", pa.bool_()),
        ("datetime_value", pa.timestamp("ms", tz="UTC")),
        ("string_set_value", pa.list_(pa.string())),
    ]
)
_REMEDY = "name the --data-path of neptune-exporter, or a project's folder in it"


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs at or below a path. An unreadable part is reported, and the rest is read.

    Raises ConfigError if there is no run.
    """
    files = sorted(path.rglob("*_part_*.parquet")) if path.is_dir() else [path]
    runs: dict[str, dict[int, Path]] = {}
    for file in files:
        if match := _PART.fullmatch(file.name):
            runs.setdefault(str(file.parent / match[1]), {})[int(match[2])] = file
    found = False
    for parts in runs.values():
        if missing := [number for number in range(max(parts)) if number not in parts]:
            problem(f"{parts[max(parts)]}: its run lacks part {missing[0]}")
        if (table := _rows(parts, problem)) is not None:
            found = True
            yield _read_run(parts[min(parts)], table, problem)
    if not found:
        raise ConfigError(path, "", None, "does not hold runs that neptune-exporter saved", _REMEDY)


def _rows(parts: dict[int, Path], problem: Problem) -> pa.Table | None:
    tables = []
    for _, file in sorted(parts.items()):
        try:
            table = pq.read_table(regular(file), columns=_ROWS.names, partitioning=None).select(_ROWS.names).cast(_ROWS)
            table.validate(full=True)
            tables.append(table.filter(table["attribute_path"].is_valid()))
        except (pa.ArrowException, KeyError, OSError) as error:
            problem(f"{file}: cannot be read ({one_line(error, 200)})")
    whole = pa.concat_tables(tables) if tables else None
    return whole if whole is not None and whole.num_rows else None


def _read_run(file: Path, table: pa.Table, problem: Problem) -> ImportedRun:
    project, run = (str(table[name][0]) for name in ("project_id", "run_id"))
    kinds = np.array(table["attribute_type"].to_pylist(), dtype=object)
    single = table.filter(pa.array(np.isin(kinds, _SETTINGS)))
    values: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for row in single.to_pylist():
        name, kind = row["attribute_path"], row["attribute_type"]
        if (value := row[f"{kind}_value"]) is not None:
            values[name] = plain(value)
            if kind == "float" and not _own(name):
                numbers[name] = value
    series = _series(table.filter(pa.array(kinds == "float_series")), f"{file}: run {one_line(run, 80)}", problem)
    last = max((step for step, _, _ in series), default=0)
    ended: State = "running" if str(values.get("sys/state")).lower() == "active" else "finished"
    # Version 2 numbers its runs (`SAN-1`), version 3 takes the user's name for them.
    name = values.get("sys/name") or run if values.get("sys/id") == run else run
    return ImportedRun(
        source=file,
        id=f"{project}/{run}",
        name=str(name),
        config=nested({name: values[name] for name in sorted(values) if not _own(name)}, "/"),
        state="failed" if values.get("sys/failed") is True else ended,
        started=values.get("sys/creation_time"),
        metrics=metric_table([*((last, name, value) for name, value in numbers.items()), *series]),
    )


def _own(name: str) -> bool:
    """Whether Neptune logged it by itself."""
    return name.partition("/")[0] in ("sys", "monitoring", "source_code")


def _series(table: pa.Table, where: str, problem: Problem) -> list[tuple[int, str, float]]:
    """(step, name, value) of each point. Steps are decimals: a metric whose are not whole is counted in their order."""
    frame = pd.DataFrame(
        {
            "name": table["attribute_path"].to_pandas(),
            "step": table["step"].cast(pa.float64()).to_pandas(),
            "value": table["float_value"].to_pandas(),
        }
    )
    frame = frame[~frame["name"].map(_own).astype(bool)].sort_values("step", kind="stable")
    odd = set(frame["name"][frame["step"] % 1 != 0])
    if odd:
        problem(f"{where}: steps that are not whole numbers are counted in their order: {shortened(sorted(odd))}")
    counted = frame.groupby("name", sort=False).cumcount()
    steps = frame["step"].where(~frame["name"].isin(odd), counted).astype("int64")
    return list(zip(steps.tolist(), frame["name"].tolist(), frame["value"].tolist(), strict=True))
