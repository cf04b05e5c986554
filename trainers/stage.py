"""What a trainer sees of the stage that it runs. The only door between a trainer module and the files around it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError, create_model

from contract.health import Monitor
from trainers.ranks import ALONE, Ranks
from trainers.runlog import Metrics, Progress, items_table, write_table

# Imported where they are used: a stage that declares NEEDS_TORCH = False does without.
if TYPE_CHECKING:
    import pandas as pd
    import torch

    from trainers.checkpoint import Checkpoint
    from trainers.micro_batch import MicroBatch


class Diverged(Exception):
    """The run has left the range in which its numbers mean something: NaN, collapse, an abort rule."""


@dataclass
class Stage:
    """One stage: `run(stage)` of its entry module does the work, everything below is how it reports.

    id: `debias.train`. key: 16 hex digits. seed: None where the stage is not seeded. label: `v8 seed 0`.
    config: the study's config model; a key that the stage does not declare in `reads` is an AttributeError.
    inputs: folders by name. out: its own folder; of ranks after the first one that is thrown away. devices: torch
    device strings, those of this rank. log: goes to `log.txt`. ranks: the processes of the stage.
    """

    id: str
    key: str
    seed: int | None
    label: str
    config: Any
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

        Raises Diverged where an abort rule trips; the values are kept.
        """
        numbers = self.ranks.same({name: float(value) for name, value in values.items()})  # times differ
        self.metrics.add(step, numbers)
        for event in self.monitor.observe(step, numbers):
            raise Diverged(event.reason())

    def save_items(
        self,
        rows: Iterable[tuple[str, str, str, str, float]] | pd.DataFrame,
        clusters: Mapping[str, str] | None = None,
    ) -> None:
        """Replace `items.parquet` by (item, subset, protocol, name, value) rows, or a frame with these columns.

        clusters: {item: cluster} of every item, the same in every run. Items of one cluster share noise (a target term,
        a template, the batch of one edit), in every subset in which they stand; None: each item is one of its own.

        Raises ValueError where a column or a cluster is missing or an (item, subset, protocol, name) is there twice.
        """
        write_table(self.out / "items.parquet", items_table(rows, clusters))

    def progress(self, done: int, total: int, unit: str = "steps") -> None:
        """Note that `done` of `total` units are done; cheap enough for every step."""
        self.meter.update(done, total, unit)

    def micro_batch(self, size: int | None) -> MicroBatch:
        """Return what runs a model on rows, `size` at a time (None: all), and on fewer where memory does not suffice.

        A halving is no failure: the log and the metrics `memory/*` say so, and the collector makes it a note.
        """
        from trainers.micro_batch import MicroBatch

        def note(smaller: int) -> None:
            self.halvings += 1
            self.log.warning("out of memory: micro-batches of %d rows from here on, the same effective batch", smaller)
            last = self.metrics.rows[-1][0] if self.metrics.rows else 0
            self.log_metrics(last, {"memory/halvings": self.halvings, "memory/micro_batch": smaller})

        return MicroBatch(size, note, self.ranks)

    def save_checkpoint(self, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Replace the checkpoint, atomically; it also carries the metrics logged so far.

        state: JSON values only (no tuples, no integer keys; ValueError). Random generators' states are tensors.
        """
        from trainers import checkpoint

        rows, folder = [list(row) for row in self.metrics.rows], self.ranks.same(self.out) / "checkpoint"
        checkpoint.save(folder, step, tensors, {"metrics": rows, "user": state}, self.ranks)

    def load_checkpoint(self) -> Checkpoint | None:
        """Return (step, tensors, state) of the last checkpoint and restore the metrics; None where there is none.

        Call it before the first `log_metrics`. A checkpoint that is torn or damaged counts as none.
        """
        from trainers import checkpoint

        found = checkpoint.load(self.ranks.same(self.out) / "checkpoint", self.ranks)
        if found is None:
            return None
        self.metrics.restore((int(step), name, float(value)) for step, name, value in found.state["metrics"])
        for step, name, value in self.metrics.rows:
            self.monitor.observe(step, {name: value})
        self.log.info("resumed after step %d", found.step)
        return found._replace(state=found.state["user"])


def load_config(model: str, values: Mapping[str, Any], reads: Iterable[str]) -> BaseModel:
    """Return the config model `module:Class` with `values`, guarded to the keys in `reads`.

    Looking at another key is an AttributeError: it is not part of the stage's key, so a change of it would not rerun
    the stage. `values` are complete, as the plan writes them: no value comes from a default of today. Raises
    ValueError, in one line, for values that the model refuses or would fill up.
    """
    module, _, name = model.partition(":")
    declared: type[BaseModel] = getattr(import_module(module), name)
    allowed = set(reads)
    if unknown := sorted(allowed - declared.model_fields.keys()):
        raise ValueError(f"{model}: `reads` names {', '.join(unknown)}, which it does not have")
    unread = declared.model_fields.keys() - allowed

    class Guarded(declared):  # type: ignore[misc, valid-type]
        def __getattr__(self, key: str) -> Any:
            if key in unread:
                raise AttributeError(
                    f"config.{key} is not in the stage's `reads` ({', '.join(sorted(allowed))}): add it"
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
        raise ValueError(f"{model}: {filled} is not among the plan's values, or is another here: start snakemake again")
    for key in unread:
        config.__dict__.pop(key, None)
    return config


def _difference(found: Any, written: Any, key: str = "") -> str:
    """Return the first dotted key whose value is not the written one, or nothing."""
    if isinstance(found, Mapping) and isinstance(written, Mapping):
        names = [*found, *(name for name in written if name not in found)]
        pairs = ((name, found.get(name, ...), written.get(name, ...)) for name in names)
        return next((d for name, one, two in pairs if (d := _difference(one, two, f"{key}.{name}".lstrip(".")))), "")
    return "" if found == written else key
