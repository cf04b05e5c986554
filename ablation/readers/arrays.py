"""Evaluations that are in memory, as arrays or as tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ablation.contract.errors import ConfigError
from ablation.readers import table
from ablation.readers.sheet import REPEATED, Facts, Sheet, Wanted, check_values, refuse_options


@dataclass(frozen=True, eq=False)
class Values:
    """Values of items: an array of shape [items] (one run), [seeds, items], or [seeds, items, samples]."""

    array: Any
    items: Sequence[Any] | None = None  # names; None: numbers
    clusters: Sequence[Any] | None = None  # of the items
    paths: Sequence[Path] = ()  # none, unlike files
    notes: Sequence[str] = ()

    def sheets(self, name: str, wanted: Wanted) -> list[Sheet]:
        """Return the values of each seed as a `Sheet`.

        Raises ConfigError if the array has another shape, if there is not one name for each item, if two items have the
        same name, if a value is not finite, or if `wanted` has an option that arrays lack.
        """
        values = np.asarray(self.array, dtype=float)
        if values.ndim not in (1, 2, 3) or not values.size:
            remedy = "pass an array of shape [items], [seeds, items] or [seeds, items, samples]"
            raise ConfigError("judge", "array", values.shape, "is not a valid shape", remedy)
        source = Path(name)
        refuse_options(source, wanted, **dict.fromkeys(("cluster", "filter", "item"), "does not apply to arrays"))
        seeds: Sequence[int | None] = [None] if values.ndim == 1 else range(len(values))
        samples = values.shape[2] if values.ndim == 3 else 1
        means = np.atleast_2d(values) if values.ndim < 3 else values.mean(axis=2)
        names = self._words("item", range(means.shape[1]), means.shape[1])
        order = sorted(range(len(names)), key=names.__getitem__)
        index = pd.Index([names[place] for place in order], dtype=object)
        if index.has_duplicates:
            twice = str(index[index.duplicated()][0])
            raise ConfigError(source, "item", twice, f"occurs {int((index == twice).sum())} times", REPEATED)
        metric = wanted.metric or "value"
        for run in means:
            check_values(source, metric, names, run)
        named = [] if self.clusters is None else self._words("cluster", (), len(names))
        clusters = dict(zip(names, named, strict=True)) if named else {}
        facts = Facts(metrics=(metric,), repeats=samples)
        return [
            Sheet(source, "all", metric, "", index, run[order], seed, clusters=clusters, facts=facts)
            for seed, run in zip(seeds, means, strict=True)
        ]

    def _words(self, name: str, otherwise: Sequence[Any], count: int) -> list[str]:
        given = otherwise if (words := getattr(self, f"{name}s")) is None else words
        if len(given) != count:
            problem = f"has length {len(given)}, but the number of items is {count}"
            raise ConfigError("judge", f"{name}s", None, problem, "pass one entry for each item")
        return list(map(str, np.asarray(given).tolist()))


@dataclass(frozen=True, eq=False)
class Frame:
    """A table of items in memory, with the same columns as the files that `ablation.readers.table` reads."""

    rows: pa.Table
    paths: Sequence[Path] = ()  # none, unlike files
    notes: Sequence[str] = ()

    def sheets(self, name: str, wanted: Wanted) -> Iterator[Sheet]:
        """Yield the values as `Sheet`s. Raises ConfigError if the table is invalid or lacks what `wanted` names."""
        if not self.rows.num_rows:
            raise ConfigError(name, "", None, "has no rows", "pass a table with a row for each item")
        columns = {column: self.rows[column].to_pylist() for column in self.rows.column_names}
        yield from table.sheets_of(Path(name), wanted, self.rows.column_names, columns, self._each)

    def _each(self) -> Iterator[Mapping[str, Any]]:
        for batch in self.rows.to_batches():
            yield from batch.to_pylist()
