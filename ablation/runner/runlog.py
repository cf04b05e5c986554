"""Logs of a stage: metrics, evaluation items, progress and, if requested, wandb."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from ablation.contract.atomic import replacing, write_json
from ablation.contract.numbers import counted, duration
from ablation.contract.rows import CLUSTER, SHARDS

if TYPE_CHECKING:
    import pandas as pd

METRICS, ITEMS = (pa.schema([pa.field(*column) for column in SHARDS[name].items()]) for name in ("metrics", "items"))
CLUSTERED_ITEMS = pa.schema([pa.field(*column) for column in (SHARDS["items"] | CLUSTER).items()])
FLUSH_SECONDS = 30.0
LINE_SECONDS = 10.0


def start_wandb(mode: str, folder: Path, run: Mapping[str, Any]) -> Any:
    """Return a new wandb run that logs metrics; `mode` is online, or offline, which needs no account or network."""
    import wandb

    started = wandb.init(
        mode=mode, dir=str(folder), project=os.environ.get("WANDB_PROJECT", "ablation-tracker"), resume="allow", **run
    )
    started.define_metric("*", step_metric="step")  # wandb's own step cannot go back when a stage resumes
    return started


class Metrics:
    """Metrics of a stage, kept in memory and written to `metrics.parquet` every 30 seconds and at the end.

    rows: all (step, name, value) so far. run: a wandb run that logs the same metrics.
    """

    def __init__(self, path: Path, run: Any = None) -> None:
        self._path, self._run = path, run
        self.rows: list[tuple[int, str, float]] = []
        self._flushed = time.monotonic()

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the values of a step, given as {name: value}."""
        self.rows.extend((step, name, value) for name, value in values.items())
        if self._run:
            self._run.log({"step": step, **values})
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.write()

    def restore(self, rows: Iterable[tuple[int, str, float]]) -> None:
        """Replace all rows by the rows of a checkpoint."""
        self.rows.clear()
        for step, name, value in rows:
            self.add(step, {name: value})

    def write(self) -> None:
        """Write all rows to the file."""
        write_table(self._path, _table(self.rows, METRICS))
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write the file, finish the wandb run, and wait until wandb has uploaded the run."""
        self.write()
        if self._run:
            self._run.finish()


class Progress:
    """Progress of a stage, which is written to `progress.json` and, every ten seconds, in a line to the terminal.

    `    debias.train  v8 seed 0   7/12 steps  18 s left`
    """

    def __init__(self, path: Path, title: str, terminal: TextIO | None = None) -> None:
        self._path, self._title = path, title
        self._terminal = terminal or sys.stderr
        # Intervals are measured by the monotonic clock.
        self._started, self._begun = time.time(), time.monotonic()
        self._first: tuple[float, int] | None = None
        self._written = -math.inf
        self._shown = time.monotonic()

    def update(self, done: int, total: int, unit: str) -> None:
        """Report that `done` of `total` units are done; until the last, the file is written at most once a second."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)  # units of an earlier attempt do not count for the time left
        if now - self._written >= 1 or done >= total:
            self._written = now
            written = time.time()
            if abs(moved := written - self._started - (now - self._begun)) > 1:  # the system clock was set
                self._started += moved
            values = {"done": done, "total": total, "unit": unit, "started": self._started, "updated": written}
            write_json(self._path, values)
        if now - self._shown >= LINE_SECONDS:
            self._shown = now
            self.say(f"{done}/{total} {unit}  {self._left(now, done, total)}".rstrip())

    def say(self, text: str) -> None:
        """Print one line to the terminal; a closed terminal is not an error."""
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
    """Return evaluation items as a table. If `clusters`, {item: cluster}, is given, the table has a column `cluster`.

    Raises ValueError if a column is missing, if a row occurs twice, or if an item has no cluster.
    """
    if hasattr(rows, "columns"):  # a data frame
        if missing := set(ITEMS.names) - set(rows.columns):
            problem = f"the items have no {' or '.join(sorted(missing))} column"
            raise ValueError(f"{problem}; write the columns {', '.join(ITEMS.names)}")
        frame: Any = rows
        rows = frame[ITEMS.names].itertuples(index=False, name=None)
    items, written, repeated = [], set(), []
    for item, subset, protocol, name, value in rows:
        row = (str(item), subset, protocol, name)
        if row in written:
            repeated.append(row)
        written.add(row)
        items.append((*row, float(value)))
    if repeated:
        count = counted(len(set(repeated)), "duplicate row")
        raise ValueError(f"the items have {count}, such as {repeated[0]}; write each row once")
    if clusters is None:
        return _table(items, ITEMS)
    if without := sorted({row[0] for row in items} - {str(item) for item, cluster in clusters.items() if cluster}):
        raise ValueError(
            f"no cluster is named for {counted(len(without), 'item')}, such as {without[0]}; "
            "name clusters for all items or none"
        )
    of_item = {str(item): str(cluster) for item, cluster in clusters.items()}
    return _table([(*row, of_item[row[0]]) for row in items], CLUSTERED_ITEMS)


class _NoPandas:
    """Import finder that makes pandas look as if it were not installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ImportError(name)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, which would take most of a short job's time.

    pyarrow tries the import once per process, to check whether a list is a pandas array. Other code can still import
    pandas.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema=schema)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table to the Parquet file `path`, atomically."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def open_log(path: Path, name: str) -> logging.Logger:
    """Return a logger that appends records and Python's warnings to the file `path` instead of the terminal."""
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    return logging.getLogger(name)
