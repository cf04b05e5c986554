"""A stage as its own code sees it: the only access to the files around it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError, create_model

from ablation.contract.health import Monitor
from ablation.runner.ranks import ALONE, Ranks
from ablation.runner.runlog import Metrics, Progress, items_table, write_table

if TYPE_CHECKING:
    import pandas as pd  # imported by whoever makes a frame


class Diverged(Exception):
    """Raised if a run's numbers have become meaningless: NaN, collapse, or a broken abort rule."""


@dataclass
class Stage:
    """One stage: `run(stage)` of its entry module does the work, everything below is how it reports.

    id: `debias.train`. key: 16 hex digits. seed: None if the stage is not seeded. label: `v8 seed 0`.
    config: the study's config model; a key that the stage does not declare in `reads` is an AttributeError. parts:
    slot -> function or class, by the names that the study's `parts` returns for this stage. inputs: folders by name.
    out: its own folder; for ranks after the first a temporary one. devices: torch device strings of this rank.
    log: goes to `log.txt`. ranks: the processes of the stage.
    """

    id: str
    key: str
    seed: int | None
    label: str
    config: Any
    parts: Mapping[str, Any]
    inputs: Mapping[str, Path]
    out: Path
    devices: list[str]
    threads: int
    log: logging.Logger
    metrics: Metrics
    monitor: Monitor
    meter: Progress
    ranks: Ranks = ALONE
    halvings: int = 0

    def log_metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Add numbers (or tensors of one element) to the series of their names.

        Raises Diverged if an abort rule trips; the values are kept.
        """
        numbers = self.ranks.same({name: float(value) for name, value in values.items()})  # times differ
        self.metrics.add(step, numbers)
        for event in self.monitor.observe(step, numbers):
            raise Diverged(event.reason())

    def save_items(
        self, rows: Iterable[tuple[str, str, str, str, float]] | pd.DataFrame, clusters: Mapping[str, str] | None = None
    ) -> None:
        """Replace `items.parquet` with (item, subset, protocol, name, value) rows, or a frame with these columns.

        clusters: {item: cluster} of every item, the same in every run. Items of one cluster share noise (a target term,
        a template, the batch of one edit) in every subset in which they occur; None: each item is its own cluster.

        Raises ValueError if a column or a cluster is missing or an (item, subset, protocol, name) occurs twice.
        """
        write_table(self.out / "items.parquet", items_table(rows, clusters))

    def progress(self, done: int, total: int, unit: str = "steps") -> None:
        """Note that `done` of `total` units are done; cheap enough for every step."""
        self.meter.update(done, total, unit)


def load_config(model: str, values: Mapping[str, Any], reads: Iterable[str]) -> BaseModel:
    """Return the config model `module:Class` with `values`, guarded to the keys in `reads`.

    Looking at another key is an AttributeError: it is not part of the stage's key, so a change to it would not rerun
    the stage. `values` are complete, as the plan writes them: no value comes from a default of today.
    Raises ValueError, in one line, for values that the model refuses or would fill up.
    """
    module, _, name = model.partition(":")
    declared: type[BaseModel] = getattr(import_module(module), name)
    allowed = set(reads)
    if unknown := sorted(allowed - declared.model_fields.keys()):
        raise ValueError(f"{model}: `reads` names {', '.join(unknown)}, which the model does not have")
    unread = declared.model_fields.keys() - allowed

    class Guarded(declared):  # type: ignore[misc, valid-type]
        def __getattr__(self, key: str) -> Any:
            if key in unread:
                raise AttributeError(
                    f"config.{key} is not in the stage's `reads` ({', '.join(sorted(allowed))}); add it"
                )
            return super().__getattr__(key)

    # Fields without default that this stage does not read are not among the values.
    absent: dict[str, Any] = {key: (Any, None) for key in unread if declared.model_fields[key].is_required()}
    try:
        config = create_model(declared.__name__, __base__=Guarded, **absent).model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ValueError(f"{model}: {key} = {first.get('input')!r}: {first['msg']}") from None
    if filled := _difference(config.model_dump(mode="json", include=allowed), values):
        raise ValueError(
            f"{model}: {filled} is missing from the plan's values or differs from them; start snakemake again"
        )
    for key in unread:
        config.__dict__.pop(key, None)
    return config


def _difference(actual: Any, written: Any, key: str = "") -> str:
    """Return the first dotted key whose value differs from the written one; empty if there is none."""
    if isinstance(actual, Mapping) and isinstance(written, Mapping):
        names = [*actual, *(name for name in written if name not in actual)]
        pairs = ((name, actual.get(name, ...), written.get(name, ...)) for name in names)
        return next((d for name, one, two in pairs if (d := _difference(one, two, f"{key}.{name}".lstrip(".")))), "")
    return "" if actual == written else key
