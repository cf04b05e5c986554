"""Prompts and responses behind a stage's items: `save_samples(stage, rows)`; see `ablation.contract.samples`.

A module of its own, not a method of `Stage`: the code of `Stage` counts for the key of every stage, and what a page
quotes shall be no reason to train again.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ablation.contract.samples import FILE, MOST_ITEMS, PLACE, TEXTS, cut
from ablation.runner.runlog import write_table
from trainers.running.stage import Stage

Row = Mapping[str, str | float | None]
_HALVES = re.compile("[\ud800-\udfff]")  # of a character: no file of text can hold one


def some_items(items: Sequence[str], most: int = MOST_ITEMS) -> list[int]:
    """Return the places of at most this many of the items, in order: by a hash, so the same ones in every run."""
    if len(items) <= most:
        return list(range(len(items)))
    return sorted(sorted(range(len(items)), key=lambda place: _hash(items[place]))[:most])


def save_samples(stage: Stage, rows: Iterable[Row]) -> None:
    """Replace `samples.parquet` by rows with `item`, `subset`, `protocol` and any of `prompt`, `response`, `reference`.

    A row is one text that was judged; an item may have several. Further entries are more texts, or numbers, under the
    names that a reader shall see; a row may lack some, or have None. Long texts are cut. Of an evaluation with very
    many items the caller takes `some_items`.
    """
    columns, rows = {}, list(rows)
    examples = {name: value for row in rows for name, value in row.items() if value is not None}
    for name in dict.fromkeys([*PLACE, *TEXTS, *examples]):
        values = [row.get(name) for row in rows]
        if name in examples and not isinstance(examples[name], str):
            columns[name] = pa.array([math.nan if value is None else float(value) for value in values], pa.float64())
        else:
            texts = ["" if value is None else _HALVES.sub("\ufffd", cut(str(value))) for value in values]
            columns[name] = pa.array(texts, pa.large_string())
    write_table(stage.out / FILE, pa.table(columns))


def _hash(item: str) -> int:
    return int.from_bytes(hashlib.sha256(item.encode(errors="replace")).digest()[:8], "big")
