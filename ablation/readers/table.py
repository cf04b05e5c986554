"""A plain table: CSV, TSV, JSON lines or Parquet with columns item and value, perhaps seed, subset, cluster, sample.

Further columns are texts to show: `prompt`, `target` and `answer`, or `text`. As for every format, items with different
prompts or targets in two evaluations are not paired.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ablation.config.formats import FORMATS
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers import tabular
from ablation.readers.run import ImportedRun, Problem
from ablation.readers.sheet import (
    REPEATED,
    Facts,
    ItemText,
    Sheet,
    Wanted,
    add_value,
    check_values,
    mean_over_repeats,
    refuse_options,
)

FILES = FORMATS["table"].patterns  # in a folder only where the caller says so
COLUMNS = ("item", "value", "seed", "subset", "cluster", "sample")
_WORDS = ("prompt", "text", "target", "answer")
_STRICT = """header = true, all_varchar = true, strict_mode = true, null_padding = false, quote = '"', escape = '"'"""
_SCANS = {
    ".csv": f"read_csv({{file}}, {_STRICT})",
    ".tsv": f"read_csv({{file}}, {_STRICT}, delim = '\t')",
    ".parquet": "read_parquet({file})",
    ".jsonl": f"read_json({{file}}, format = 'newline_delimited', maximum_object_size = {tabular.LARGEST_ROW},"
    " sample_size = -1, convert_strings_to_integers = false)",
}


def read(path: Path, problem: Problem, columns: Mapping[str, str] = tabular.NOTHING) -> Iterator[ImportedRun]:
    """Yield the runs of a table of runs, for `import`; see run_table. Raises ConfigError."""
    from ablation.readers.run_table import read_runs

    yield from read_runs(path, problem, columns)


def recognises(path: Path) -> bool:
    """Whether the file is a table by its name; JSON lines must name an item in their first row."""
    return path.suffix in _SCANS and (path.suffix != ".jsonl" or "item" in tabular.first_row(path))


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Read one table: a sheet for each seed and subset in it.

    Raises:
        ConfigError: a column is missing, a value is not a finite number, a seed not an integer, or an item is repeated.
    """
    own = "a plain table has a column cluster of its own"
    refuse_options(path, wanted, cluster=own, filter="a plain table has no filters")
    value, item = wanted.metric or "value", wanted.item or "item"
    columns = columns_of(path, value, item)
    optional = [column for column in COLUMNS[2:] if column in columns]
    asked = [column for column in ("prompt", "target") if column in columns]
    tabular.check_unpacked(path, [item, value, *optional])
    rows = tabular.query(
        path,
        f"""SELECT CAST({tabular.sql_name(item)} AS VARCHAR) AS item,
            {tabular.sql_number(tabular.sql_name(value))} AS value
            {"".join(f", CAST({column} AS VARCHAR) AS {column}" for column in optional)}
            {"".join(f", {tabular.sql_digest(f'CAST({column} AS VARCHAR)')} AS {column}" for column in asked)}
            FROM {_SCANS[path.suffix]}""",
    )
    if not len(rows["item"]):
        raise ConfigError(path, "", None, "has no rows", "give a table with an evaluation in it")
    _check(path, value, rows, optional)
    frame = pd.DataFrame({name: rows[name] for name in ("item", "value", *optional, *asked)})
    keys = [column for column in ("seed", "subset") if column in optional]
    groups: Any = frame.groupby(keys, sort=False) if keys else [((), frame)]
    for key, group in groups:
        at = dict(zip(keys, key, strict=True))
        if not wanted.wants(at.get("subset", "all")):
            continue
        seed = int(at["seed"]) if "seed" in at else None
        yield _sheet(path, (item, value), group, columns, (seed, at.get("subset", "all")))


def columns_of(path: Path, value: str = "value", item: str = "item") -> list[str]:
    """Return the columns of a table. Raises ConfigError if it lacks item or value, or the file is not a table."""
    if path.suffix not in _SCANS:
        raise ConfigError(path, "", None, "is not a table", f"give {', '.join(_SCANS)}")
    if not path.stat().st_size:
        raise ConfigError(path, "", None, "is empty", "give a table with an evaluation in it")
    try:
        columns = list(tabular.query(path, f"SELECT * FROM {_SCANS[path.suffix]} LIMIT 0"))
    except ConfigError:
        _name_torn_row(path)
        raise
    if absent := {
        repr(name): option for name, option in ((item, "--item"), (value, "--metric")) if name not in columns
    }:
        _name_torn_row(path)
        problem = f"has no column {' or '.join(absent)}, only {one_line(', '.join(columns), 200) or 'none'}"
        remedy = "a plain table has item, value and optionally seed, subset, cluster, sample"
        remedy += " (one with a row for each run is for `import`)"
        remedy += f"; {' or '.join(absent.values())} names another column"
        raise ConfigError(path, "", None, problem, remedy)
    return columns


def _name_torn_row(path: Path) -> None:
    """Refuse a text with a row that was cut off, for which DuckDB finds no form, or another: all in one column."""
    if path.suffix in (".csv", ".tsv"):
        deque(tabular.rows_of(path), maxlen=0)


def _check(path: Path, value: str, rows: dict[str, Any], optional: Sequence[str]) -> None:
    def first(column: str, wrong: Callable[[str | None], bool]) -> int | None:
        """Return the first row with a wrong text; each text is checked once."""
        bad = {text for text in set(rows[column]) if wrong(text)}
        return next(place for place, text in enumerate(rows[column]) if text in bad) if bad else None

    if (place := first("item", lambda item: not (item or "").strip())) is not None:
        raise ConfigError(path, "item", None, f"row {place + 1} has none", "name every item")
    check_values(path, value, rows["item"], rows["value"], partial(_written, path, value))
    for column in optional:
        wrong = _is_no_seed if column == "seed" else _is_missing
        if (place := first(column, wrong)) is not None:
            text = rows[column][place]
            remedy = "fill the column, or leave it out" if text is None else "write whole numbers"
            raise ConfigError(path, column, text, f"row {place + 1} has no {column}", remedy)


def _is_missing(text: str | None) -> bool:
    return text is None


def _is_no_seed(text: str | None) -> bool:
    return text is None or not text.strip().lstrip("-").isdigit()


def _written(path: Path, value: str, place: int) -> Any:
    """Return what the file has in place of a value."""
    rows = tabular.query(path, f"SELECT CAST({tabular.sql_name(value)} AS VARCHAR) AS raw FROM {_SCANS[path.suffix]}")
    return rows["raw"][place]


def _sheet(
    path: Path,
    names: tuple[str, str],
    group: pd.DataFrame,
    columns: Sequence[str],
    seed_and_subset: tuple[int | None, str],
) -> Sheet:
    (item, value), (seed, subset), samples = names, seed_and_subset, 1
    if "sample" in columns:
        group, samples = _averaged(path, value, group)
    group = group.sort_values("item", kind="stable")
    items = pd.Index(group["item"].astype(str))
    if items.has_duplicates:
        twice = str(items[items.duplicated()][0])
        where = "".join(
            f" of {word} {key}" for word, key in (("subset", subset), ("seed", seed)) if key not in (None, "all")
        )
        raise ConfigError(path, "item", twice, f"stands {int((items == twice).sum())} times{where}", REPEATED)
    values = group["value"].to_numpy(dtype=float)
    return Sheet(
        path,
        subset,
        value,
        filter="",
        items=items,
        values=values,
        seed=seed,
        asked={name: group[name].to_numpy() for name in ("prompt", "target") if name in columns},
        clusters=dict(zip(items, group["cluster"], strict=True)) if "cluster" in columns else {},
        facts=Facts(metrics=(value,), repeats=samples),
        texts=partial(_texts, path, item, columns, seed_and_subset),
    )


def _averaged(path: Path, value: str, group: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return a row for each item, with the mean of its samples, and how many samples an item has."""
    values: dict[str, dict[Any, float]] = {}
    for item, sample, number in zip(group["item"], group["sample"], group["value"], strict=True):
        add_value(path, values, item, sample, number)
    items, means, samples = mean_over_repeats(path, value, values)
    return group.drop_duplicates("item").set_index("item").loc[items].assign(value=means).reset_index(), samples


def _texts(
    path: Path, item: str, columns: Sequence[str], seed_and_subset: tuple[int | None, str], items: Sequence[str]
) -> dict[str, ItemText]:
    text_columns = [column for column in _WORDS if column in columns]
    if not text_columns:
        return {}
    keys = [(c, v) for c, v in zip(("seed", "subset"), seed_and_subset, strict=True) if c in columns]
    name = tabular.sql_name(item)
    texts_sql = "".join(f", CAST({column} AS VARCHAR) AS {column}" for column in text_columns)
    rows = tabular.query(
        path,
        f"""SELECT CAST({name} AS VARCHAR) AS item{texts_sql}
            FROM {_SCANS[path.suffix]} WHERE list_contains(?, CAST({name} AS VARCHAR))
            {"".join(f" AND CAST({column} AS VARCHAR) = ?" for column, _ in keys)}""",
        [list(items), *(str(key) for _, key in keys)],
    )
    texts = {}
    for place, name in enumerate(rows["item"]):
        said = {column: rows[column][place] or "" for column in text_columns}
        texts[name] = ItemText(
            said.get("prompt") or said.get("text", ""), said.get("target", ""), said.get("answer", "")
        )
    return texts
