"""Evaluation items of a source that names none: a hash stands for what was asked, a number for each repeat."""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from ablation.imports.run import ITEM_ROWS, as_text


class Numbered:
    """Names items: the first of a hash is `hash`, further ones are `hash#2`, `hash#3`, in the order of the file."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def name(self, digest: str, place: str) -> str:
        """Return the name of the next item of this hash in this place (a step, a file)."""
        self._seen[digest, place] += 1
        count = self._seen[digest, place]
        return digest if count == 1 else f"{digest}#{count}"


def item_table(rows: Iterable[tuple[str, str, str, str, float]]) -> pa.Table:
    """Return ITEM_ROWS of (item, subset, protocol, name, value), without clusters."""
    columns = list(zip(*rows, strict=True)) or [()] * (len(ITEM_ROWS.names) - 1)
    columns[:-1] = [tuple(map(as_text, words)) for words in columns[:-1]]
    arrays = [pa.array(values, type=kind) for values, kind in zip(columns, ITEM_ROWS.types[:-1], strict=True)]
    return pa.table([*arrays, pa.nulls(len(arrays[0]), pa.string())], schema=ITEM_ROWS)


def repeats_as_clusters(items: pa.Table) -> pa.Table:
    """Return the items with repeats of one question in one cluster: they share its difficulty, so they err together."""
    names = items["item"].to_pylist()
    clusters = [name.partition("#")[0] for name in names]
    if clusters == names:
        return items
    return items.set_column(items.schema.get_field_index("cluster"), "cluster", pa.array(clusters, pa.string()))
