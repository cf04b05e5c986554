"""The stage object that trainers and commands use to read their configuration and inputs and to report results."""

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
    import pandas as pd  # not imported at run time, because most stages do not need it


class Diverged(Exception):
    """Raised if a run diverges: its metrics are NaN, have collapsed, or break an abort rule."""


@dataclass
class Stage:
    """One stage, which is passed to `run(stage)` of its entry module.

    id: such as `debias.train`. key: 16 hex digits. seed: None if the stage is not seeded. label: such as `v8 seed 0`.
    config: the study's config model; reading a key that is not in the stage's `reads` raises AttributeError. parts:
    {slot: function or class} as named by the study's `parts`. inputs: {name: folder} of input stages. out: the stage's
    own folder; a temporary one for ranks after the first. devices: torch devices of this rank. log: writes to
    `log.txt`. ranks: the processes of the stage.
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
        """Log a step's {name: value}; values are numbers or tensors of one element.

        Raises Diverged, after logging the values, if they break an abort rule.
        """
        numbers = self.ranks.same({name: float(value) for name, value in values.items()})  # measured times differ
        self.metrics.add(step, numbers)
        for event in self.monitor.observe(step, numbers):
            raise Diverged(event.reason())

    def save_items(
        self, rows: Iterable[tuple[str, str, str, str, float]] | pd.DataFrame, clusters: Mapping[str, str] | None = None
    ) -> None:
        """Replace `items.parquet` by rows (item, subset, protocol, name, value), or by a frame with these columns.

        clusters: {item: cluster} for all items, the same in every run. Items of one cluster, such as those of one
        template or edit, share noise; None: each item is its own cluster. Raises ValueError if a column or a cluster is
        missing, or if an (item, subset, protocol, name) occurs twice.
        """
        write_table(self.out / "items.parquet", items_table(rows, clusters))

    def progress(self, done: int, total: int, unit: str = "steps") -> None:
        """Report that `done` of `total` units are done; the call is cheap enough for every step."""
        self.meter.update(done, total, unit)


def load_config(model: str, values: Mapping[str, Any], reads: Iterable[str]) -> BaseModel:
    """Return the config model `module:Class` with `values`, restricted to the keys in `reads`.

    Reading any other key raises AttributeError, because it is not part of the stage's key and a change to it would not
    rerun the stage. Raises ValueError, with one line, if the model does not accept a value or `reads`, or if it would
    add a default, because the plan writes all values.
    """
    module, _, name = model.partition(":")
    declared: type[BaseModel] = getattr(import_module(module), name)
    allowed = set(reads)
    if unknown := sorted(allowed - declared.model_fields.keys()):
        raise ValueError(f"`reads` names {', '.join(unknown)}, which {model} does not define; correct `reads`")
    unread = declared.model_fields.keys() - allowed

    class Guarded(declared):  # type: ignore[misc, valid-type]
        def __getattr__(self, key: str) -> Any:
            if key in unread:
                raise AttributeError(
                    f"config.{key} is missing from the stage's `reads` ({', '.join(sorted(allowed))}); add it there"
                )
            return super().__getattr__(key)

    # Required fields that this stage does not read have no value, so they become optional.
    absent: dict[str, Any] = {key: (Any, None) for key in unread if declared.model_fields[key].is_required()}
    try:
        config = create_model(declared.__name__, __base__=Guarded, **absent).model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        problem = f"{key} = {first.get('input')!r} in config.json is not valid ({first['msg']})"
        raise ValueError(f"{model}: {problem}; start snakemake again") from None
    if filled := _difference(config.model_dump(mode="json", include=allowed), values):
        raise ValueError(f"{model}: config.json lacks {filled} or has another value of it; start snakemake again")
    for key in unread:
        config.__dict__.pop(key, None)
    return config


def _difference(actual: Any, written: Any, key: str = "") -> str:
    """Return the first dotted key whose actual value differs from the written one; empty if none does."""
    if isinstance(actual, Mapping) and isinstance(written, Mapping):
        names = [*actual, *(name for name in written if name not in actual)]
        pairs = ((name, actual.get(name, ...), written.get(name, ...)) for name in names)
        return next((d for name, one, two in pairs if (d := _difference(one, two, f"{key}.{name}".lstrip(".")))), "")
    return "" if actual == written else key
