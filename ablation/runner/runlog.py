"""Logs of a stage: metrics, evaluation items, progress and, on request, wandb."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.contract.atomic import replacing, write_json
from ablation.contract.rows import CLUSTER, SHARDS
from ablation.runner.times import duration

if TYPE_CHECKING:
    import pandas as pd

METRICS, ITEMS = (pa.schema([pa.field(*column) for column in SHARDS[name].items()]) for name in ("metrics", "items"))
CLUSTERED_ITEMS = pa.schema([pa.field(*column) for column in (SHARDS["items"] | CLUSTER).items()])
FLUSH_SECONDS = 30.0
LINE_SECONDS = 10.0


class Sink(Protocol):
    """A dashboard that also wants each number: wandb."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values of one step."""

    def close(self) -> None:
        """Finish."""


class Wandb:
    """A wandb run, opted in by ABLATION_WANDB=offline or =online; offline needs neither account nor network.

    Steps are the metric `step` rather than wandb's own, which refuses to go back when a stage is resumed.
    """

    def __init__(self, mode: str, folder: Path, run: Mapping[str, Any]) -> None:
        import wandb

        project = os.environ.get("WANDB_PROJECT", "ablation-tracker")
        self._run = wandb.init(mode=mode, dir=str(folder), project=project, **run)
        self._run.define_metric("*", step_metric="step")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values of one step."""
        self._run.log({"step": step, **values})

    def close(self) -> None:
        """End the run; online, wait for the upload."""
        self._run.finish()


def wandb_mode() -> str | None:
    """Return offline, online or None, as ABLATION_WANDB asks.

    Raises ValueError for another word, and where wandb is asked for and is not installed.
    """
    mode = os.environ.get("ABLATION_WANDB", "").strip().lower()
    if mode in ("", "0", "off", "disabled"):
        return None
    if mode not in ("offline", "online"):
        raise ValueError(f"ABLATION_WANDB = {mode!r}: must be offline or online; unset it to do without wandb")
    from importlib.util import find_spec

    if find_spec("wandb") is None:
        raise ValueError(f"ABLATION_WANDB = {mode}: wandb is not installed; run `pip install wandb`, or unset it")
    return mode


class Metrics:
    """The series of a stage: kept in memory, written to `metrics.parquet` now and then and at the end."""

    def __init__(self, path: Path, sinks: Iterable[Sink] = ()) -> None:
        self._path, self._sinks = path, list(sinks)
        self._rows: list[tuple[int, str, float]] = []
        self._flushed = time.monotonic()

    @property
    def rows(self) -> list[tuple[int, str, float]]:
        """All (step, name, value) so far."""
        return self._rows

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values of a step."""
        self._rows.extend((step, name, value) for name, value in values.items())
        for sink in self._sinks:
            sink.add(step, values)
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.write()

    def restore(self, rows: Iterable[tuple[int, str, float]]) -> None:
        """Start from the rows that a checkpoint carried."""
        self._rows.clear()
        for step, name, value in rows:
            self._rows.append((step, name, value))
            for sink in self._sinks:
                sink.add(step, {name: value})

    def write(self) -> None:
        """Replace the file by all rows."""
        write_table(self._path, _table(self._rows, METRICS))
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write the file and close the sinks."""
        self.write()
        for sink in self._sinks:
            sink.close()


class Progress:
    """How far a stage is: `progress.json` for the tracker, and a line on the terminal every ten seconds.

    `    debias.train  v8 seed 0   7/12 steps  18 s left`
    """

    def __init__(self, path: Path, title: str, terminal: TextIO | None = None) -> None:
        self._path, self._title = path, title
        self._terminal = terminal or sys.stderr
        # Intervals by the clock that is never set; -inf: never written.
        self._started, self._begun = time.time(), time.monotonic()
        self._first: tuple[float, int] | None = None
        self._written = -math.inf
        self._shown = time.monotonic()

    def update(self, done: int, total: int, unit: str) -> None:
        """Note that `done` of `total` units are done. Cheap: touches the disk at most once a second."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)  # a resumed stage does not count what its predecessor did
        if now - self._written >= 1 or done >= total:
            self._written = now
            written = time.time()
            if abs(moved := written - self._started - (now - self._begun)) > 1:  # the clock was set: it began then, too
                self._started += moved
            values = {"done": done, "total": total, "unit": unit, "started": self._started, "updated": written}
            write_json(self._path, values)
        if now - self._shown >= LINE_SECONDS:
            self._shown = now
            self.say(f"{done}/{total} {unit}  {self._left(now, done, total)}".rstrip())

    def say(self, text: str) -> None:
        """Print one line to the terminal; a closed terminal is not a reason to stop."""
        with contextlib.suppress(OSError, ValueError):
            print(f"    {self._title}   {text}", file=self._terminal, flush=True)

    def _left(self, now: float, done: int, total: int) -> str:
        started, first = self._first or (now, done)
        if done <= first or now <= started:
            return ""
        return f"{duration((now - started) / (done - first) * (total - done))} left"


def items_table(
    rows: Iterable[tuple[str, str, str, str, float]] | pd.DataFrame, clusters: Mapping[str, str] | None = None
) -> pa.Table:
    """Return evaluation items as a table, with a column `cluster` where `clusters`, {item: cluster}, is given.

    Raises ValueError where a column is missing, an item is there twice, or one has no cluster.
    """
    if hasattr(rows, "columns"):  # a data frame; pandas, which takes half a second to import, is its maker's
        if missing := set(ITEMS.names) - set(rows.columns):
            raise ValueError(f"items lack the columns {', '.join(sorted(missing))}; they have {', '.join(ITEMS.names)}")
        frame: Any = rows
        rows = frame[ITEMS.names].itertuples(index=False, name=None)
    items, seen, twice = [], set(), []
    for item, subset, protocol, name, value in rows:
        row = (str(item), subset, protocol, name)
        if row in seen:
            twice.append(row)
        seen.add(row)
        items.append((*row, float(value)))
    if twice:
        raise ValueError(f"{len(twice)} items are there twice, for example {twice[0]}")
    if clusters is None:
        return _table(items, ITEMS)
    if without := sorted({row[0] for row in items} - {str(item) for item, cluster in clusters.items() if cluster}):
        raise ValueError(
            f"{len(without)} items have no cluster, for example {without[0]}: name one for each, or for none"
        )
    of_item = {str(item): str(cluster) for item, cluster in clusters.items()}
    return _table([(*row, of_item[row[0]]) for row in items], CLUSTERED_ITEMS)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return rows of strings, integers and floats, none of them null, as a table."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([_column(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column. `pa.array` would do, but it imports pandas to see that they are not a frame."""
    if kind != pa.string():
        numbers = np.array(values, kind.to_pandas_dtype())
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])
    texts = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"strings of {ends[-1]} bytes do not fit into one column")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def write_table(path: Path, table: pa.Table) -> None:
    """Replace `path` by a Parquet file."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def open_log(path: Path, name: str) -> logging.Logger:
    """Return a logger whose records, and Python's warnings, go to `path` (appended) and not to the terminal."""
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    return logging.getLogger(name)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None where there is none or it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
