"""Runs that other programs made, as every reader returns them, and functions that the readers share."""

import hashlib
import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ablation.config.formats import formats_of
from ablation.config.names import suggest
from ablation.config.yaml_io import parse_foreign
from ablation.contract.display import listed, one_line, printable
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_text
from ablation.contract.rows import CLUSTER, ITEMS, METRICS

Array = NDArray[Any]
Problem = Callable[[str], None]
"""Function that a reader calls with one line about something that it could not read, before it reads on."""


class ItemsLost(str):
    """A line for `problem` about a file of items that is left out as a whole, which makes a command's stage fail."""


State = Literal["finished", "running", "failed"]
"""State of a run, as far as its source records it."""

EVALUATION = "evaluation"
"""Protocol of the items that the reader `evaluation` returns."""

METRIC_ROWS = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in METRICS.items()])
"""Schema of `ImportedRun.metrics`."""

ITEM_ROWS = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in (ITEMS | CLUSTER).items()])
"""Schema of `ImportedRun.items`; `cluster` is null in every row if the source has no clusters."""


@dataclass(frozen=True)
class ImportedRun:
    """A run that another program logged, as a reader returns it.

    Attributes:
        source: the file or folder that holds the run.
        id: identifies the run within its source, so that a later import finds it again.
        name: for people; need not be unique. Seeds and variants are read from it if the configuration has none.
        config: the run's configuration, nested, as it was recorded: keys need not be text, and values may be dates;
            importing converts it to JSON.
        seed: None if neither configuration nor source states it.
        state: how the run ended; `finished` if the format does not record it.
        started: ISO 8601; None if it is not recorded.
        metrics: a table (METRIC_ROWS) with a row for each step and name; see `metric_table`.
        kept: the step of the model that the run kept, if the source states it; if None, see `kept.kept_step`.
        items: a table (ITEM_ROWS) with a row for each evaluation item and value; None if the source has no items.
        prompts: {subset: digest of its prompts}, if the source has them.
    """

    source: Path
    id: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    state: State = "finished"
    started: str | None = None
    metrics: pa.Table = field(default_factory=METRIC_ROWS.empty_table)
    kept: int | None = None
    items: pa.Table | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
A_STEP = re.compile(r"step (\d+)")  # subsets that are evaluations during training
_ONLY_A_SEED = re.compile(r"(seed|s)?[-_=]?\d+", re.IGNORECASE)

Reader = Callable[[Path, Problem], Iterator[ImportedRun]]
"""Function that yields the runs at a path. It raises ConfigError if the path has another format."""


def metric_table(logged: Iterable[tuple[int, str, float]]) -> pa.Table:
    """Return (step, name, value) as a table (METRIC_ROWS), sorted by step and name; of duplicates, the last counts.

    A row needs only 20 bytes until it is in the table, so runs with tens of millions of rows can be read.
    """
    codes: dict[str, int] = {}
    columns = array("q"), array("i"), array("d")
    for step, name, value in logged:
        columns[0].append(step)
        columns[1].append(codes.setdefault(name, len(codes)))
        columns[2].append(value)
    steps, places, values = (np.array(column) for column in columns)
    return table_of_columns(steps, places, values, list(codes))


def table_of_columns(steps: Array, codes: Array, values: Array, tags: Sequence[str]) -> pa.Table:
    """Return the same table as `metric_table`, but from columns; `codes` are the indices of the names in `tags`."""
    names = sorted(tags, key=as_text)
    ranks = np.empty(len(names), np.int32)
    code = {tag: place for place, tag in enumerate(tags)}
    ranks[[code[name] for name in names]] = np.arange(len(names), dtype=np.int32)
    places = ranks[codes]
    order = np.lexsort((places, steps))  # stable
    same = (np.diff(steps[order]) == 0) & (np.diff(places[order]) == 0)
    kept = order[~np.append(same, False)] if len(order) else order
    dictionary = pa.array(map(as_text, names), pa.string())
    texts = pa.DictionaryArray.from_arrays(pa.array(places[kept]), dictionary).cast(pa.string())
    return pa.table([pa.array(steps[kept]), texts, pa.array(values[kept])], schema=METRIC_ROWS)


def as_number(value: Any) -> float | None:
    """Return a number or a boolean as a float; None for anything else."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return None


def as_written(value: Any) -> float | None:
    """Return a number as `as_number` does, also from the texts `NaN`, `Infinity` and `-Infinity`; else None."""
    return _NOT_FINITE.get(value) if isinstance(value, str) else as_number(value)


def as_text(name: str) -> str:
    r"""Return a name for a table, with codes in place of control characters and lone surrogates: `\x1b`, `\n`."""
    return printable(name).replace("\n", r"\n").replace("\t", r"\t")


def as_step(value: Any) -> int | None:
    """Return the value if it can be a step, a whole number of at most 64 bits; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def name_below(root: Path, place: Path) -> str:
    """Return a run's name: the run's path below `root`, or the last two parts of `root` for a run at `root`.

    A folder `seed_1` directly below `root` does not name a variant, so the name of `root` is put before it.
    """
    parts = place.relative_to(root).parts if place != root and place.is_relative_to(root) else ()
    if len(parts) == 1 and _ONLY_A_SEED.fullmatch(parts[0]):
        parts = (root.resolve().name, *parts)
    return "/".join(parts) if parts else "/".join(place.resolve().parts[-2:])


class Numbered:
    """Names items by a hash of their question: the first `hash`, and repeats `hash#2`, `hash#3`, in file order."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def name(self, asked: Any, place: str = "", *, ascii: bool = True) -> str:
        """Return the name of the next item with this question; each `place` (a step, a file) has its own count."""
        text = json.dumps(asked, sort_keys=True, ensure_ascii=ascii)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._seen[digest, place] += 1
        count = self._seen[digest, place]
        return digest if count == 1 else f"{digest}#{count}"


def item_table(rows: Iterable[tuple[str, str, str, str, float]]) -> pa.Table:
    """Return (item, subset, protocol, name, value) as a table (ITEM_ROWS) without clusters."""
    columns = list(zip(*rows, strict=True)) or [()] * (len(ITEM_ROWS.names) - 1)
    columns[:-1] = [tuple(map(as_text, texts)) for texts in columns[:-1]]
    arrays = [pa.array(values, type=kind) for values, kind in zip(columns, ITEM_ROWS.types[:-1], strict=True)]
    return pa.table([*arrays, pa.nulls(len(arrays[0]), pa.string())], schema=ITEM_ROWS)


def repeats_as_clusters(items: pa.Table) -> pa.Table:
    """Return the items, with the repeats of a question in one cluster, because the errors of repeats are correlated."""
    names = items["item"].to_pylist()
    clusters = [name.partition("#")[0] for name in names]
    if clusters == names:
        return items
    return items.set_column(items.schema.get_field_index("cluster"), "cluster", pa.array(clusters, pa.string()))


def item_means(items: pa.Table) -> dict[str, float]:
    """Return {protocol/subset/name: mean}, and the means over several subsets as protocol/mean/name.

    The subsets `step N` and `last` are evaluations during training, so they do not count in the means over subsets.
    """
    groups = items.group_by(["protocol", "subset", "name"], use_threads=False).aggregate([("value", "mean")])
    over_subsets: dict[str, list[float]] = {}
    means: dict[str, float] = {}
    for row in groups.to_pylist():
        means[f"{row['protocol']}/{row['subset']}/{row['name']}"] = row["value_mean"]
        if row["subset"] != "last" and not A_STEP.fullmatch(row["subset"]):
            over_subsets.setdefault(f"{row['protocol']}/mean/{row['name']}", []).append(row["value_mean"])
    return {name: sum(values) / len(values) for name, values in over_subsets.items() if len(values) > 1} | means


def shortened(names: Sequence[str]) -> str:
    """Return up to five names as text, and the number of the others."""
    return listed([one_line(name, 80) for name in names], 5)


def iso_time(seconds: float | None) -> str | None:
    """Return a time in seconds since the epoch as ISO 8601 in UTC; None for None or a time out of range."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def read_settings(candidates: Iterable[Path], problem: Problem) -> dict[str, Any]:
    """Return the content of the first file that exists and is a mapping; {} if there is none."""
    for path in candidates:
        if not path.is_file():
            continue
        try:
            text = read_text(path)
            content = json.loads(text) if path.suffix == ".json" else parse_foreign(text)
        except (OSError, ValueError, RecursionError) as error:
            problem(f"{path}: cannot be read ({one_line(error, 200)}), so it is left out")
            continue
        if isinstance(content, dict):
            return content
        problem(f"{path}: does not hold a mapping, so it is left out")
    return {}


def load_reader(name: str, use: str = "import") -> Reader:
    """Return the function `read` of a format. Raises ConfigError if the format is not for `use`, such as `collect`."""
    if name not in formats_of(use):
        raise ConfigError(use, "FORMAT", name, "is not a known format", suggest(name, formats_of(use)))
    read: Reader = import_module(f"ablation.readers.{name}").read
    return read
