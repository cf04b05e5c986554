"""Reader of plain tables of items: CSV, TSV, JSON lines, a JSON array of objects, or Parquet.

The columns are `item`, `value` and optionally `seed`, `subset`, `cluster` and `sample`. Those of items, values and
samples may have other usual names (`columns`). The columns `prompt`, `target`, `answer` and `text` are texts to show.
As for every format, items with different prompts or targets in two evaluations are not paired.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablation.config.names import suggest
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers import tabular
from ablation.readers.columns import (
    ITEM,
    LANGSMITH_ERROR,
    LANGSMITH_ITEM,
    LANGSMITH_SAMPLE,
    LANGSMITH_VALUES,
    SAMPLE,
    VALUE,
    NotANumber,
    is_of_langsmith,
    named,
    numbers,
)
from ablation.readers.run import ImportedRun, Problem
from ablation.readers.sheet import (
    REPEATED,
    Facts,
    ItemText,
    Sheet,
    Wanted,
    check_values,
    mean_over_repeats,
    refuse_options,
    short,
)

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
_OPTIONAL = ("seed", "subset", "cluster")
_ASKED = ("prompt", "target")
_WORDS = ("prompt", "text", "target", "answer")
_Rows = Callable[[], Iterator[Mapping[str, Any]]]


def read(path: Path, problem: Problem, columns: Mapping[str, str] = tabular.NOTHING) -> Iterator[ImportedRun]:
    """Yield the runs of a table of runs, for `import`; see `run_table.read_runs`."""
    from ablation.readers.run_table import read_runs

    yield from read_runs(path, problem, columns)


def recognises(path: Path) -> bool:
    """Return whether a file is a table, by its suffix; JSON must also have `item`, or usual keys of item and value."""
    if path.suffix in (".jsonl", ".json"):
        row = {name.lower() for name in tabular.first_row(path)}
        return "item" in row or not (row.isdisjoint(ITEM) or row.isdisjoint(VALUE)) or is_of_langsmith(row)
    return path.suffix in SUFFIXES


@dataclass(frozen=True)
class _Names:
    """The columns of a table: item, value, other columns that are read by name, and the columns of `--by`."""

    item: str
    value: str
    others: Sequence[str]
    by: Sequence[str] = ()
    of_langsmith: bool = False

    @property
    def samples(self) -> list[str]:
        """Return the columns that may number the answers to one item."""
        return [column for column in self.others if column.lower() in SAMPLE or self.of_langsmith]


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the table's values as `Sheet`s. Raises ConfigError if the table is invalid or lacks what `wanted` names."""
    head, columns = _read_columns(path, wanted)
    yield from sheets_of(path, wanted, head, columns, lambda: (row for _, row in tabular.rows_of(path)))


def sheets_of(
    path: Path, wanted: Wanted, head: Sequence[str], columns: Mapping[str, Sequence[Any]], rows: _Rows
) -> Iterator[Sheet]:
    """Yield a `Sheet` of values for each seed, subset, and combination of values in the columns `wanted.by` of a table.

    head: all columns; columns: {column: cells} of those that may be read; rows: returns an iterator over all rows.

    Raises ConfigError if a column is missing, a value is not a finite number, a seed is not an integer, or an item is
    repeated.
    """
    cluster_advice = "a plain table names clusters in its column `cluster`"
    refuse_options(path, wanted, cluster=cluster_advice, filter="a plain table has no filters")
    names = _names(path, head, wanted)
    cells = {name: columns[name] for name in dict.fromkeys((names.item, *names.others, *names.by))}
    frame = pd.DataFrame(cells, dtype=object)
    frame = frame.rename(columns={names.item: "item"}).assign(value=_values(path, names.value, columns))
    if names.of_langsmith:
        frame.loc[[not _is_missing(cell) for cell in columns[LANGSMITH_ERROR]], "value"] = np.nan
    _check(path, names, frame)
    frame["failed"] = frame["value"].isna() & (wanted.errors == "fail")
    frame.loc[frame["failed"], "value"] = 0.0
    for column in ("item", "subset", "cluster", *names.samples, *names.by):
        if column in frame:
            frame[column] = frame[column].astype(str)
    keys = [*(column for column in ("seed", "subset") if column in names.others), *names.by]
    groups: Any = frame.groupby(keys, sort=False) if keys else [((), frame)]
    for key, group in groups:
        at = dict(zip(keys, key, strict=True))
        if wanted.wants(at.get("subset", "all")):
            yield _sheet(path, names, group, at, rows)


def columns_of(path: Path) -> list[str]:
    """Return the columns of a table.

    Raises ConfigError if the file is not a table, or if it lacks a column of items or values.
    """
    head, _ = _read_columns(path, Wanted())
    _names(path, head, Wanted())
    return head


def _read_columns(path: Path, wanted: Wanted) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the names of all columns, and {column: cells} of those that may be read."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(path, "", None, "is not a table", f"name a file that ends in {', '.join(SUFFIXES)}")
    if not path.stat().st_size:
        raise ConfigError(path, "", None, "is empty", "name a table that holds an evaluation")
    usual = {*ITEM, *VALUE, *SAMPLE, *_OPTIONAL, *_ASKED}
    chosen = {wanted.item, wanted.metric, *wanted.by}

    def may_be_read(name: str) -> bool:
        of_langsmith = name == LANGSMITH_ERROR or name.startswith(LANGSMITH_VALUES)
        return name in chosen or name.strip().lower() in usual or of_langsmith

    head = dict.fromkeys(tabular.parquet_names(path))
    cells: dict[str, list[Any]] = {}
    known: Any = None
    for count, (_, row) in enumerate(tabular.rows_of(path, may_be_read)):
        if row.keys() != known:
            known = row.keys()
            cells |= {name: [None] * count for name in row if may_be_read(name) and name not in cells}
            head |= dict.fromkeys(row)
        for name, column in cells.items():
            column.append(row.get(name))
    if not known:
        raise ConfigError(path, "", None, "has no rows", "name a table that holds an evaluation")
    return list(head), cells


def _names(path: Path, head: Sequence[str], wanted: Wanted) -> _Names:
    of_langsmith = is_of_langsmith(head)
    scores = [column for column in head if of_langsmith and column.startswith(LANGSMITH_VALUES)]
    if len(scores) > 1 and wanted.metric is None:
        problem = f"any of the columns {', '.join(scores)} may be the value column"
        raise ConfigError(path, "", None, problem, f"choose one with --metric, such as --metric {scores[0]}")
    item = wanted.item or (LANGSMITH_ITEM if of_langsmith else named(path, head, ITEM, "--item"))
    value = wanted.metric or (scores[0] if of_langsmith else named(path, head, VALUE, "--metric"))
    lacking = {
        repr(column or usual): option
        for column, usual, option in ((item, "item", "--item"), (value, "value", "--metric"))
        if column not in head
    }
    if lacking or not item or not value:
        problem = f"has no column {' or '.join(lacking)}, only {one_line(', '.join(head), 200)}"
        other = "another column" if len(lacking) == 1 else "other columns"
        remedy = f"name {other} with {' and '.join(lacking.values())}, or rename the columns to item and value"
        remedy += " (optional: seed, subset, cluster, sample); to read a table of runs use `ablation import table`"
        raise ConfigError(path, "", None, problem, remedy)
    if absent := [column for column in wanted.by if column not in head]:
        raise ConfigError(path, "--by", absent[0], "the column does not exist", suggest(absent[0], head))
    remaining = [column for column in head if column not in (item, value, *wanted.by)]
    others = [column for column in remaining if column in (*_OPTIONAL, *_ASKED) or column.lower() in SAMPLE]
    return _Names(item, value, [LANGSMITH_SAMPLE] if of_langsmith else others, wanted.by, of_langsmith)


def _values(path: Path, value: str, columns: Mapping[str, Sequence[Any]]) -> list[float]:
    try:
        return numbers(columns[value])
    except NotANumber as error:
        where = f"row {error.place + 1}: {value}"
        raise ConfigError(path, where, columns[value][error.place], error.problem, error.remedy) from None


def _check(path: Path, names: _Names, frame: pd.DataFrame) -> None:
    def first(column: str, wrong: Callable[[Any], bool]) -> int | None:
        return next((place for place, cell in enumerate(frame[column]) if wrong(cell)), None)

    if (place := first("item", lambda item: _is_missing(item) or not str(item).strip())) is not None:
        raise ConfigError(path, names.item, None, f"is missing in row {place + 1}", "name every item")
    for column in ("item", *names.others, *names.by):
        if (place := first(column, _is_not_text)) is not None:
            problem = f"is not text in row {place + 1}"
            raise ConfigError(path, column, frame[column].iloc[place], problem, "write it as text")
    finite = frame[frame["value"].notna()]
    check_values(path, names.value, finite["item"].astype(str).tolist(), finite["value"].to_numpy(float))
    for column in [name for name in (*names.others, *names.by) if name in (*_OPTIONAL, "sample", *names.by)]:
        wrong = (lambda cell: tabular.whole(cell) is None) if column == "seed" else _is_missing
        if (place := first(column, wrong)) is not None:
            cell = frame[column].iloc[place]
            problem, remedy = "is missing", "fill the column, or remove it"
            if not _is_missing(cell):
                problem, remedy = "is not a whole number", "write whole numbers"
            raise ConfigError(path, column, cell, f"{problem} in row {place + 1}", remedy)


def _is_not_text(cell: Any) -> bool:
    return isinstance(cell, bytes | dict | list)


def _is_missing(cell: Any) -> bool:
    return cell is None or cell != cell or cell == ""  # noqa: PLR0124 - NaN


def _sheet(path: Path, names: _Names, group: pd.DataFrame, at: Mapping[str, Any], rows: _Rows) -> Sheet:
    lost = group["item"][group["value"].isna()]
    why = f", or there is an error in column {LANGSMITH_ERROR}" if names.of_langsmith else ""
    unscored = dict.fromkeys(lost, f"its cell in column {names.value} is empty{why}")
    scored = group[~group["item"].isin(unscored)].sort_values("item", kind="stable")
    subset, seed = at.get("subset", "all"), tabular.whole(at.get("seed"))
    if scored.empty:
        raise ConfigError(path, names.value, None, f"no item of the subset {subset} has a value", "fill the column")
    samples = 1
    twice = scored["item"].duplicated()
    if twice.any() and not names.samples:
        raise _repeated(path, names, scored[twice].iloc[0], rows)
    if twice.any() or "sample" in names.others:
        scored, samples = _averaged(path, names, scored, rows)
    remarks = [f"items are in the column {names.item}"] * (names.item != ITEM[0])
    remarks += [f"values are in the column {names.value}"] * (names.value != VALUE[0])
    remarks += [f"each item has {samples} samples, numbered by {' and '.join(names.samples)}"] * (samples > 1)
    items = pd.Index(scored["item"])
    return Sheet(
        path,
        subset,
        names.value,
        filter="",
        items=items,
        values=scored["value"].to_numpy(dtype=float),
        seed=seed,
        asked={name: np.array([*map(_digest, scored[name])], np.uint64) for name in _ASKED if name in names.others},
        clusters=dict(zip(items, scored["cluster"], strict=True)) if "cluster" in names.others else {},
        facts=Facts(
            metrics=(names.value,),
            repeats=samples,
            settings={column: str(at[column]) for column in names.by},
            remarks=("; ".join(remarks),) if remarks else (),
            failed=int(group["failed"].sum()),
        ),
        texts=partial(_texts, rows, names, at),
        unscored=unscored,
    )


def _averaged(path: Path, names: _Names, scored: pd.DataFrame, rows: _Rows) -> tuple[pd.DataFrame, int]:
    """Return a frame with a row for each item and the mean of its samples, and the number of samples per item."""
    twice = scored.duplicated(["item", *names.samples])
    if twice.any():
        raise _repeated(path, names, scored[twice].iloc[0], rows)
    values: dict[str, dict[Any, float]] = {}
    for at, (item, value) in enumerate(zip(scored["item"], scored["value"], strict=True)):
        values.setdefault(item, {})[at] = value
    items, means, samples = mean_over_repeats(path, names.value, values)
    return scored.drop_duplicates("item").set_index("item").loc[items].assign(value=means).reset_index(), samples


def _repeated(path: Path, names: _Names, one: "pd.Series[Any]", every: _Rows) -> ConfigError:
    """Return an error for an item that occurs several times; it names a column that distinguishes the rows, if any."""
    where = [key for key in ("subset", "seed", *names.samples) if key in names.others]
    keys = (names.item, *where, *names.by)
    rows = list(every())
    known = [tuple(str(row.get(key)) for key in keys) for row in rows]
    count = known.count(tuple(str(one["item" if key == names.item else key]) for key in keys))
    within = f" ({', '.join(f'{key} {one[key]}' for key in where)})" if where else ""
    problem = f"item {short(one['item'])} occurs {count} times{within}"
    apart = {}
    for column in rows[0]:
        cells = [str(row.get(column)) for row in rows]
        if column not in (*keys, names.value) and len(set(zip(known, cells, strict=True))) == len(rows):
            apart[column] = len(set(cells))
    column = min(apart, key=lambda name: apart[name], default="")
    if not column or apart[column] > len(rows) / 2:
        return ConfigError(path, names.item, None, problem, REPEATED)
    remedy = f"the column {column} distinguishes the rows; pass --by {column} if it names systems, or "
    remedy += "rename it to sample if it numbers the answers to an item"
    return ConfigError(path, names.item, None, problem, remedy)


def _digest(cell: Any) -> int:
    """Return the digest that `tabular.sql_digest` computes of a text; 0 if there is no cell."""
    if cell is None:
        return 0
    text = cell if isinstance(cell, str) else json.dumps(cell, default=str)
    md5 = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return int.from_bytes(md5.digest()[8:], "little")


def _texts(rows: _Rows, names: _Names, at: Mapping[str, Any], items: Sequence[str]) -> dict[str, ItemText]:
    chosen, texts = set(items), dict[str, ItemText]()
    for row in rows():
        item = str(row.get(names.item))
        if item not in chosen or item in texts or any(str(row.get(key)) != str(value) for key, value in at.items()):
            continue
        words = {word: str(row[word]) for word in _WORDS if row.get(word) is not None}
        texts[item] = ItemText(
            words.get("prompt") or words.get("text", ""), words.get("target", ""), words.get("answer", "")
        )
    return texts
