"""Logs of a stage: metrics, evaluation items, progress and, on request, wandb."""

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
    """Start a wandb run, a second log of the metrics. mode: offline (needs neither account nor network) or online."""
    import wandb

    started = wandb.init(
        mode=mode, dir=str(folder), project=os.environ.get("WANDB_PROJECT", "ablation-tracker"), resume="allow", **run
    )
    started.define_metric("*", step_metric="step")  # wandb's own step refuses to go back when a stage is resumed
    return started


class Metrics:
    """The series of a stage: kept in memory, written to `metrics.parquet` now and then and at the end.

    rows: all (step, name, value) so far. run: of wandb, which gets them as well.
    """

    def __init__(self, path: Path, run: Any = None) -> None:
        self._path, self._run = path, run
        self.rows: list[tuple[int, str, float]] = []
        self._flushed = time.monotonic()

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Append a step's values."""
        self.rows.extend((step, name, value) for name, value in values.items())
        if self._run:
            self._run.log({"step": step, **values})
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.write()

    def restore(self, rows: Iterable[tuple[int, str, float]]) -> None:
        """Start from the rows of a checkpoint."""
        self.rows.clear()
        for step, name, value in rows:
            self.add(step, {name: value})

    def write(self) -> None:
        """Replace the file with one of all rows."""
        write_table(self._path, _table(self.rows, METRICS))
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write the file, and end wandb's run; online, wait for its upload."""
        self.write()
        if self._run:
            self._run.finish()


class Progress:
    """Progress of a stage: `progress.json` for the tracker, and a line on the terminal every ten seconds.

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
    """Return evaluation items as a table, with a column `cluster` if `clusters`, {item: cluster}, is given.

    Raises ValueError if a column is missing, an item occurs twice, or an item has no cluster.
    """
    if hasattr(rows, "columns"):  # a data frame
        if missing := set(ITEMS.names) - set(rows.columns):
            raise ValueError(
                f"items lack the columns {', '.join(sorted(missing))}; add all of {', '.join(ITEMS.names)}"
            )
        frame: Any = rows
        rows = frame[ITEMS.names].itertuples(index=False, name=None)
    items, written, twice = [], set(), []
    for item, subset, protocol, name, value in rows:
        row = (str(item), subset, protocol, name)
        if row in written:
            twice.append(row)
        written.add(row)
        items.append((*row, float(value)))
    if twice:
        raise ValueError(f"the rows repeat {counted(len(set(twice)), 'item')}, for example {twice[0]}")
    if clusters is None:
        return _table(items, ITEMS)
    if without := sorted({row[0] for row in items} - {str(item) for item, cluster in clusters.items() if cluster}):
        raise ValueError(
            f"the clusters lack {counted(len(without), 'item')}, for example {without[0]}; "
            "name clusters for all items or none"
        )
    of_item = {str(item): str(cluster) for item, cluster in clusters.items()}
    return _table([(*row, of_item[row[0]]) for row in items], CLUSTERED_ITEMS)


class _NoPandas:
    """A finder of modules that hides pandas, as if it were not installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ImportError(name)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes most of a short job's time.

    It imports pandas once in a process, to ask whether a list is one of its arrays, and remembers the answer. Code that
    needs pandas may still import it.
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
    """Replace `path` with a Parquet file of the table."""
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
