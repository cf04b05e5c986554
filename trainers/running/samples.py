"""Prompts and responses behind a stage's items: `save_samples(stage, rows)`; see `ablation.contract.samples`.

A module of its own, not a method of `Stage`: the code of `Stage` counts for the key of every stage, and what a page
quotes shall be no reason to train again.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ablation.contract.samples import FILE, LONGEST, MOST, MOST_ITEMS, NOTE, PLACE, SHORTEST, TEXTS, Cut
from ablation.runner.runlog import write_table
from trainers.running.stage import Stage

Row = Mapping[str, str | float | None]
_HALVES = re.compile("[\ud800-\udfff]")  # of a character: no file of text can hold one
_PLACE = frozenset(PLACE)
_ROW = 100  # characters that a row counts as, in addition to its texts


def some_items(items: Sequence[str], most: int = MOST_ITEMS) -> list[int]:
    """Return the places of at most so many of the items, in order: by a hash, so the same ones in every run."""
    if len(items) <= most:
        return list(range(len(items)))
    return sorted(sorted(range(len(items)), key=lambda place: _hash(items[place]))[:most])


def save_samples(stage: Stage, rows: Iterable[Row]) -> None:
    """Replace `samples.parquet` by rows with `item`, `subset`, `protocol` and any of `prompt`, `response`, `reference`.

    A row is one text that was judged; an item may have several. Further entries are more texts, or numbers, under the
    names that a reader shall see; a row may lack some, or have None. Long texts are cut, and what is too much for one
    file is left out and told: memory stays within a few times `ablation.contract.samples.MOST`. Of an evaluation with
    very many items the caller takes `some_items`.

    Raises ValueError where a row lacks its place, or an entry is text in one row and a number in another.
    """
    kept = _Kept()
    for row in rows:
        kept.add(row)
    write_table(stage.out / FILE, kept.table())


class _Kept:
    """Rows within the limits of one file, whatever comes: texts are cut shorter, then items are left out."""

    def __init__(self) -> None:
        self._rows: list[dict[str, str | Cut | float]] = []
        self._is_text: dict[str, bool] = dict.fromkeys((*PLACE, *TEXTS), True)  # of each column
        self._length, self._longest = 0, LONGEST
        self._share = 1  # one item in so many is kept, the same ones in every run
        self._items_out: set[str] = set()

    def add(self, row: Row) -> None:
        """Take a row."""
        cells: dict[str, str | Cut | float] = {}
        length, longest, kinds = _ROW, self._longest, self._is_text
        for name, value in row.items():
            if value is None:
                continue
            is_text = isinstance(value, str)
            if kinds.get(name) is not is_text and kinds.setdefault(name, is_text) is not is_text:
                raise ValueError(f"samples: {name} is text in one row and a number in another: {value!r:.100}")
            cells[name] = value
            if isinstance(value, str):
                length += len(value)
                if len(value) > longest:
                    cells[name] = Cut(value).to(longest)
                    length -= len(value) - longest
        if not cells.keys() >= _PLACE:
            missing = ", ".join(name for name in PLACE if name not in cells)
            raise ValueError(f"a sample has no {missing}: {dict(row)!r:.200}")
        if self._share > 1 and not self._is_wanted(cells):
            return
        self._rows.append(cells)
        self._length += length
        while self._length > MOST and self._rows:
            self._shrink()

    def _shrink(self) -> None:
        if self._longest > SHORTEST:
            self._longest = max(SHORTEST, self._longest // 2)
            for row in self._rows:
                row |= {name: _shorter(cell, self._longest) for name, cell in row.items()}
        else:
            self._share *= 2
            self._rows = [row for row in self._rows if self._is_wanted(row)]
        self._length = sum(_length(row) for row in self._rows)

    def _is_wanted(self, row: Mapping[str, str | Cut | float]) -> bool:
        item = str(row["item"])
        if _hash(item) % self._share == 0:
            return True
        self._items_out.add(item)
        return False

    def table(self) -> pa.Table:
        """Return the rows; a column for each name, empty or NaN where a row lacks it."""
        columns = {}
        for name, is_text in self._is_text.items():
            values: list[Any] = [row.get(name, "" if is_text else math.nan) for row in self._rows]
            if is_text:
                columns[name] = pa.array([_HALVES.sub("\ufffd", str(value)) for value in values], pa.large_string())
            else:
                columns[name] = pa.array([float(value) for value in values], pa.float64())
        table = pa.table(columns)
        notes = []
        if self._longest < LONGEST:
            notes.append(f"texts were cut to {self._longest:,} characters")
        if self._items_out:
            notes.append(f"the words of {len(self._items_out):,} items were left out")
        if not notes:
            return table
        return table.replace_schema_metadata({NOTE: f"{' and '.join(notes)}, for the size of the file".encode()})


def _hash(item: str) -> int:
    return int.from_bytes(hashlib.sha256(item.encode(errors="replace")).digest()[:8], "big")


def _shorter(cell: str | Cut | float, longest: int) -> str | Cut | float:
    if isinstance(cell, str):
        return cell if len(cell) <= longest else Cut(cell).to(longest)
    return cell.to(longest) if isinstance(cell, Cut) else cell


def _length(row: Mapping[str, str | Cut | float]) -> int:
    return _ROW + sum(len(cell) for cell in row.values() if isinstance(cell, str | Cut))
