"""Write the prompts and responses behind a stage's items, which the page quotes; see `ablation.contract.samples`.

These are not methods of `Stage`, whose code is part of every stage's key, because a change here must not repeat the
training.
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
_SURROGATES = re.compile("[\ud800-\udfff]")  # which UTF-8 cannot encode


def some_items(items: Sequence[str], most: int = MOST_ITEMS) -> list[int]:
    """Return the indices of at most `most` items, in order; a hash chooses the same items in all runs."""

    def hashed(number: int) -> int:
        return int.from_bytes(hashlib.sha256(items[number].encode(errors="replace")).digest()[:8], "big")

    numbers = range(len(items))
    return list(numbers) if len(items) <= most else sorted(sorted(numbers, key=hashed)[:most])


def save_samples(stage: Stage, rows: Iterable[Row]) -> None:
    """Replace `samples.parquet` by rows with `item`, `subset`, `protocol` and any of `prompt`, `response`, `reference`.

    A row is one judged text; an item may have several. Other entries of a row are texts or numbers that the page shows
    under their names. Any entry may be None or missing in some rows. Long texts are cut. The caller should select
    `some_items`.
    """
    columns, rows = {}, list(rows)
    examples = {name: value for row in rows for name, value in row.items() if value is not None}
    for name in dict.fromkeys([*PLACE, *TEXTS, *examples]):
        values = [row.get(name) for row in rows]
        if name in examples and not isinstance(examples[name], str):
            columns[name] = pa.array([math.nan if value is None else float(value) for value in values], pa.float64())
        else:
            texts = ["" if value is None else _SURROGATES.sub("\ufffd", cut(str(value))) for value in values]
            columns[name] = pa.array(texts, pa.large_string())
    write_table(stage.out / FILE, pa.table(columns))
