"""Sheets, each the evaluation of one run on one subset, and functions that the readers of evaluations share.

A reader is a module with two functions:

    recognises(path) -> bool                    by name and first bytes
    sheets(path, wanted) -> Iterator[Sheet]     raises ConfigError for a file of another format

A reader of single answers yields a `Sample` for each answer, and `sample_sheets` turns these into sheets.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from ablation.contract.display import listed, one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import stated
from ablation.contract.reading import read_json, read_text
from ablation.contract.rows import LARGEST
from ablation.readers.run import ITEM_ROWS, as_number
from ablation.readers.tabular import rows_of

Array = NDArray[np.float64]
Digests = NDArray[np.uint64]
REPEATED = "remove the duplicates, or evaluate again"
CUT_OFF = "copy the file again; it may have been cut off"


Errors = Literal["refuse", "fail", "leave-out"]


@dataclass(frozen=True)
class Wanted:
    """What to read from an evaluation; None means the first metric or filter in the file, or the usual column."""

    metric: str | None = None
    filter: str | None = None
    tasks: tuple[str, ...] = ()  # subsets; none named: all
    cluster: str | None = None  # `doc.FIELD`, in which items of one cluster agree
    item: str | None = None  # the column of a table that names items; with it every file is a table
    by: tuple[str, ...] = ()  # columns of a table whose values name the sides
    errors: Errors = "refuse"  # for items that have no value because something broke

    def wants(self, subset: str) -> bool:
        """Return whether a subset is to be read."""
        return not self.tasks or subset in self.tasks


@dataclass(frozen=True)
class ItemText:
    """An item's prompt, target and answer, each "" if the file does not have it."""

    asked: str = ""
    wanted: str = ""
    answered: str = ""


ANY = Wanted()


def _no_texts(items: Sequence[str]) -> dict[str, ItemText]:
    return {}


@dataclass(frozen=True)
class Facts:
    """Facts about a whole evaluation; a fact that the evaluation's file does not state keeps its default."""

    tool: str = ""  # that wrote it
    version: str | None = None  # of the task
    task_hash: str | None = None  # of all that was asked
    reported: float | None = None  # the metric
    stderr: float | None = None  # its standard error, over items of this one run
    larger_is_better: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # model, arguments: what may be the change
    metrics: tuple[str, ...] = ()  # that the file has
    filters: tuple[str, ...] = ()
    shared: str = ""  # description of a long text that several items share without being a cluster
    repeats: int = 1  # times that each item was asked; values are means over them
    groups: Mapping[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)  # name: mean, its tasks
    remarks: tuple[str, ...] = ()  # notes for the reader
    failed: int = 0  # samples without a value that count as 0, as the caller asks


@dataclass(frozen=True, eq=False)
class Sheet:
    """Values of one metric for the items of one subset, in one run."""

    source: Path
    subset: str
    metric: str
    filter: str  # "" where the format has none
    items: pd.Index  # sorted, each once
    values: Array  # [items], finite
    seed: int | None = None  # where the file itself says so
    asked: Mapping[str, Digests] = field(default_factory=dict)  # "prompt", "target": [items]; what must agree
    clusters: Mapping[str, str] = field(default_factory=dict)  # by item, where items are correlated
    facts: Facts = field(default=Facts())
    texts: Callable[[Sequence[str]], dict[str, ItemText]] = _no_texts
    unscored: Mapping[str, str] = field(default_factory=dict)  # items without a value, which are in none of the above

    def only(self, items: pd.Index) -> "Sheet":
        """Return the sheet with only these items."""
        places = self.items.get_indexer(items)
        asked = {name: digests[places] for name, digests in self.asked.items()}
        kept = {item: cluster for item, cluster in self.clusters.items() if item in items}
        return replace(self, items=items, values=self.values[places], asked=asked, clusters=kept)


def refuse_options(path: Path, wanted: Wanted, **unknown: str) -> None:
    """Raise ConfigError for a wanted option that a format lacks; `unknown` is {option: reason}."""
    for option, why in unknown.items():
        if value := getattr(wanted, option):
            raise ConfigError(path, option, value, why, f"leave out --{option}")


def check_values(
    path: Path, metric: str, items: Sequence[str], values: Array, raw: Callable[[int], Any] | None = None
) -> None:
    """Raise ConfigError for a value that is not finite or exceeds LARGEST; `raw(index)` is the value in the file."""
    bad = np.flatnonzero(~(np.abs(values) <= LARGEST))
    if len(bad):
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        what = f"a value above {stated(LARGEST)}" if np.isfinite(values[bad]).all() else "no finite value"
        problem = f"item {short(items[bad[0]])}{more} {'have' if more else 'has'} {what}"
        value = float(values[bad[0]]) if raw is None else raw(bad[0])
        remedy = "evaluate again, because no item may be left out"
        if isinstance(value, str) and re.search(r"\w", value) and value.strip().lower() not in ("nan", "null", "none"):
            remedy = "write numbers such as 0.5, or 1 and 0 for right and wrong"
        raise ConfigError(path, metric, value, problem, remedy)


_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_-](\d\d)[-:]?(\d\d)[-:]?(\d\d)(\.\d+)?")


def date_in(path: Path) -> str | None:
    """Return the date that lm-eval or Inspect put in a file's name, as sortable digits; None without a date."""
    match = _DATE.search(path.name)
    return "".join(part or "" for part in match.groups()) if match else None


def newer(path: Path, other: Path) -> bool:
    """Return whether a file is newer than another, by the dates in the names or else by the modification times.

    Raises ConfigError if their times are equal.
    """
    dates: tuple[Any, Any] = date_in(path), date_in(other)
    if None in dates:
        dates = path.stat().st_mtime_ns, other.stat().st_mtime_ns
    if dates[0] == dates[1]:
        problem = f"is exactly as new as {other}"
        raise ConfigError(path, "", None, problem, "name only one of them")
    return bool(dates[0] > dates[1])


def short(item: str) -> str:
    """Return an item's name for display: the first digits of a hash, or the beginning and end of a long name."""
    if re.fullmatch(r"[0-9a-f]{64,}", item):
        return item[:12]
    return item if len(item) <= 64 else f"{item[:30]}…{item[-30:]}"


def some(items: Sequence[str], count: int = 3) -> str:
    """Return the first few items as text, and the number of the others."""
    return listed([short(item) for item in items], count)


def digest(*texts: str) -> int:
    """Return a 64-bit digest of the parts of a prompt or target."""
    return int.from_bytes(hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest())


def mean_over_repeats(path: Path, metric: str, values: Mapping[str, Mapping[Any, float]]) -> tuple[pd.Index, Any, int]:
    """Return the sorted items, their means [items], and the number of repeats, from {item: {repeat: value}}.

    Raises ConfigError if items have unequal numbers of repeats, or a value is not finite.
    """
    items = pd.Index(sorted(values))
    counts = {item: len(values[item]) for item in items}
    most, least = max(counts, key=lambda item: counts[item]), min(counts, key=lambda item: counts[item])
    if counts[most] != counts[least]:
        problem = f"item {short(most)} has {counts[most]} samples, but item {short(least)} has {counts[least]}"
        raise ConfigError(path, "", None, problem, "evaluate all items equally often")
    means = np.array([float(np.mean(list(values[item].values()))) for item in items])
    check_values(path, metric, items, means)
    return items, means, counts[most]


@dataclass(frozen=True)
class Sample:
    """An answer to an item of a subset: its numbers, its texts, and the number of the repeat."""

    subset: str
    item: str
    values: Mapping[str, Any]  # by metric; a value that is not a number is refused if it is wanted
    words: ItemText = ItemText()
    repeat: Any = 0
    more: Sequence[str] = ()  # parts of the question besides the prompt: choices, instructions
    error: str | None = None  # why it has no values
    cluster: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the system that answered, if a file holds several


def sample_sheets(
    path: Path,
    wanted: Wanted,
    samples: Iterable[Sample],
    facts_of: Callable[[str, str], Facts],
    read: Callable[[], Iterable[Sample]] = tuple,
) -> Iterator[Sheet]:
    """Yield a `Sheet` for each subset and each system (`Sample.settings`) among the samples of a file.

    facts_of: returns the facts that the samples do not show, for a subset and metric. read: yields the samples again,
    for their texts.

    Raises ConfigError if `wanted` has a cluster or a filter, which these formats lack, or if the metric does not exist,
    a value is not a finite number, no item has a value, or an item occurs twice or more often than others.
    """
    why = "does not apply to this format"
    refuse_options(path, wanted, cluster=why, filter=why)
    gathered: dict[tuple[tuple[tuple[str, str], ...], str], _Gathered] = {}
    for sample in samples:
        if wanted.wants(sample.subset):
            gathered.setdefault((tuple(sample.settings.items()), sample.subset), _Gathered()).add(path, wanted, sample)
    for (system, subset), found in gathered.items():
        scored = {item: by_repeat for item, by_repeat in found.values.items() if item not in found.lost}
        if not scored:
            why = next(iter(found.lost.values()))
            raise ConfigError(path, subset, None, f"no item has a score ({why})", "evaluate again")
        metric = wanted.metric or next(iter(found.metrics))
        items, means, repeats = mean_over_repeats(path, metric, scored)
        digests = np.array([found.asked.get(item, (0, 0)) for item in items], dtype=np.uint64).T
        facts = facts_of(subset, metric)
        settings = {**facts.settings, **dict(system)}
        yield Sheet(
            path,
            subset,
            metric,
            filter="",
            items=items,
            values=means,
            asked={name: column for name, column in zip(("prompt", "target"), digests, strict=True) if column.any()},
            clusters={item: found.clusters[item] for item in items if item in found.clusters},
            facts=replace(facts, metrics=tuple(found.metrics), repeats=repeats, failed=found.failed, settings=settings),
            texts=partial(_texts_of, read, subset),
            unscored=found.lost,
        )


@dataclass
class _Gathered:
    """Collects the samples of one subset and system; `lost` holds the errors of items without a value."""

    metrics: dict[str, None] = field(default_factory=dict)
    values: dict[str, dict[Any, float]] = field(default_factory=dict)
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    failed: int = 0

    def add(self, path: Path, wanted: Wanted, sample: Sample) -> None:
        self.metrics |= dict.fromkeys(sample.values)
        metric = wanted.metric or next(iter(self.metrics), "")
        value, item = sample.values.get(metric), short(sample.item)
        if sample.error is not None and (value is None or value != value):  # noqa: PLR0124 - NaN
            if wanted.errors != "fail":
                self.lost[sample.item] = sample.error
                return
            value = 0.0
            self.failed += 1
        elif metric not in sample.values:
            problem = f"item {item} does not have this metric"
            if metric in self.metrics:  # other items have it
                remedy = "evaluate again, or pass --metric with a metric that every item has"
            elif self.metrics:
                remedy = f"choose from {', '.join(self.metrics)}"
            else:
                problem, remedy = f"item {item} has no score", "evaluate again"
            raise ConfigError(path, "metric", metric or None, problem, remedy)
        if not isinstance(value, int | float):
            problem, remedy = f"item {item} has no number for this metric", "name another metric with --metric"
            raise ConfigError(path, metric, str(value), problem, remedy)
        by_repeat = self.values.setdefault(sample.item, {})
        if sample.repeat in by_repeat:
            raise ConfigError(path, "", None, f"item {item} occurs twice (repeat {sample.repeat})", REPEATED)
        by_repeat[sample.repeat] = as_number(value) or 0.0
        if sample.cluster is not None:
            self.clusters[sample.item] = sample.cluster
        if sample.words != ItemText():
            self.asked[sample.item] = digest(sample.words.asked, *sample.more), digest(sample.words.wanted)


def _texts_of(read: Callable[[], Iterable[Sample]], subset: str, items: Sequence[str]) -> dict[str, ItemText]:
    texts: dict[str, ItemText] = {}
    chosen = set(items)
    for sample in read():
        if sample.subset == subset and sample.item in chosen:
            texts.setdefault(sample.item, sample.words)
            if len(texts) == len(chosen):
                break
    return texts


@contextmanager
def intact(path: Path, key: str = "", remedy: str = "copy the file again") -> Iterator[None]:
    """Raise ConfigError if the block fails because the file lacks a key or holds a value of the wrong type."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"the key {error} is missing" if isinstance(error, KeyError) else error
        raise ConfigError(path, key, None, f"is damaged ({why})", remedy) from None


def json_lines(path: Path, sample_of: Callable[[dict[str, Any]], Sample]) -> Iterator[Sample]:
    """Yield the samples of a file of JSON lines. Raises ConfigError for a damaged line."""
    for number, row in rows_of(path):
        with intact(path, f"line {number}"):
            sample = sample_of(row)
        yield sample


def json_start(path: Path, size: int = 4096) -> bytes:
    """Return the first bytes of a file `*.json`, by which its format is recognised; b"" for any other path."""
    if path.suffix != ".json" or path.is_dir():
        return b""
    with path.open("rb") as handle:
        return handle.read(size)


def read_evaluation(path: Path) -> Any:
    """Return the content of a JSON file. Raises ConfigError if it cannot be read, or if an object has a key twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            twice = next(key for key in content if sum(key == name for name, _ in pairs) > 1)
            raise ConfigError(path, short(twice), None, "occurs twice in one object", REPEATED)
        return content

    try:
        return json.loads(read_text(path, 1 << 30), object_pairs_hook=once)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(path, "", None, f"cannot be read ({one_line(error, 200)})", CUT_OFF) from None


def read_beside(path: Path, otherwise: Any) -> Any:
    """Return the content of a JSON file beside a file of samples, or `otherwise` if that file does not exist.

    Raises ConfigError if the file cannot be read, or if its content has another type than `otherwise`.
    """
    try:
        content = read_json(path, 256 << 20)
    except FileNotFoundError:
        return otherwise
    except (OSError, ValueError) as error:
        raise ConfigError(path, "", None, f"cannot be read ({error})", "copy the file again, or remove it") from None
    if otherwise is not None and not isinstance(content, type(otherwise)):
        raise ConfigError(path, "", None, "is not a JSON object", "copy the file again, or remove it")
    return content


def sheet_items(
    sheet: Sheet, protocol: str, name: str, *, clustered: bool, suffixes: Sequence[str] | None = None
) -> pa.Table:
    """Return the values of a sheet as a table (ITEM_ROWS); `suffixes` are appended to the names of its items.

    With `clustered`, an item without a cluster becomes a cluster of its own; otherwise there are no clusters.
    """
    items = [str(item) for item in sheet.items]
    count = len(items)
    clusters = [sheet.clusters.get(item, item) for item in items] if clustered else [None] * count
    names = items if suffixes is None else [f"{item}{suffix}" for item, suffix in zip(items, suffixes, strict=True)]
    columns = [names, [sheet.subset] * count, [protocol] * count, [name] * count, sheet.values.tolist(), clusters]
    return pa.table(columns, schema=ITEM_ROWS)
