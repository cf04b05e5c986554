"""A run that another program made, as every reader returns it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from contract.rows import CLUSTER, ITEMS, METRICS

Problem = Callable[[str], None]
"""Told one line that names the file and what of it could not be read; the reader goes on with the rest."""

METRIC_ROWS = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in METRICS.items()])
"""Of `ImportedRun.metrics`."""

ITEM_ROWS = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in (ITEMS | CLUSTER).items()])
"""Of `ImportedRun.items`; `cluster` is null in every row where the source knows none."""


@dataclass(frozen=True)
class ImportedRun:
    """One run of a source.

    Attributes:
        source: the file or folder that it was read from.
        id: stable, and unique in its source: importing again finds the same run by it.
        name: for people; need not be unique.
        config: nested, plain JSON values; what the source knows of how the run was configured, or nothing.
        seed: of the run; None where neither configuration nor source tells it.
        state: what the source says of its end; `running` where it does not say that it ended.
        started: ISO 8601 with a zone; None where the source does not tell.
        metrics: METRIC_ROWS, by step, then in the order in which they were logged; one row per step and name.
        items: ITEM_ROWS: one row per evaluation item and value; None where the source has none.
    """

    source: Path
    id: str
    name: str
    config: dict[str, Any]
    seed: int | None
    state: Literal["finished", "running", "failed"]
    started: str | None
    metrics: pa.Table
    items: pa.Table | None


Reader = Callable[[Path, Problem], Iterator[ImportedRun]]
"""Yields the runs at a path. Raises ConfigError where the path is not of the reader's format."""
