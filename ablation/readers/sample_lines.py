"""Samples that other tools write as JSON lines, read alike: one function makes a row into a sample."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.readers.sheet import (
    Facts,
    ItemText,
    Sheet,
    Wanted,
    add_value,
    asked,
    digest,
    mean_over_repeats,
    refuse_options,
    short,
)


@dataclass(frozen=True)
class Sample:
    """One row: its subset and item, the numbers that it has, and its texts."""

    subset: str
    item: str
    values: Mapping[str, Any]  # by metric; what is not a number is refused if it is asked for
    words: ItemText


def sheets_of(
    path: Path, wanted: Wanted, sample_of: Callable[[Path, dict[str, Any]], Sample], facts_of: Callable[..., Facts]
) -> Iterator[Sheet]:
    """Yield a sheet for each subset of a file; `facts_of(path, subset, metric, metrics)` says what is known besides.

    Raises:
        ConfigError: there is no such metric, a value is not a finite number, a row is damaged, or an item stands twice.
    """
    refuse_options(path, wanted, cluster="its samples name no clusters", filter="its samples name no filters")
    values: dict[str, dict[str, dict[Any, float]]] = {}
    said: dict[str, dict[str, dict[str, int]]] = {}
    metrics: dict[str, tuple[str, ...]] = {}
    for sample in _samples(path, sample_of):
        if not wanted.wants(sample.subset):
            continue
        known = metrics.setdefault(sample.subset, tuple(sample.values))
        metric = wanted.metric or next(iter(known), "")
        if metric not in sample.values:
            there = f"the file has {', '.join(known)}" if known else "its samples have no number"
            raise ConfigError(path, "metric", metric or None, f"item {short(sample.item)} has none of this name", there)
        value = sample.values[metric]
        if not isinstance(value, int | float):
            problem = f"item {short(sample.item)} has no number of its own: the metric is of all items at once"
            raise ConfigError(path, metric, str(value), problem, "name another with --metric")
        add_value(path, values.setdefault(sample.subset, {}), sample.item, 0, float(value))
        of_subset = said.setdefault(sample.subset, {"prompt": {}, "target": {}})
        of_subset["prompt"][sample.item] = digest(sample.words.asked)
        of_subset["target"][sample.item] = digest(sample.words.wanted)
    for subset, found in values.items():
        metric = wanted.metric or metrics[subset][0]
        items, means, _ = mean_over_repeats(path, metric, found)
        texts = partial(_texts, path, sample_of, subset)
        facts = facts_of(path, subset, metric, metrics[subset])
        yield Sheet(path, subset, metric, "", items, means, None, asked(items, said[subset]), {}, facts, texts)


def _samples(path: Path, sample_of: Callable[[Path, dict[str, Any]], Sample]) -> Iterator[Sample]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                sample = sample_of(path, json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                problem = f"line {number} is damaged ({error!r})"
                raise ConfigError(path, "", None, problem, "copy the file again") from None
            yield sample


def _texts(
    path: Path, sample_of: Callable[[Path, dict[str, Any]], Sample], subset: str, items: Sequence[str]
) -> dict[str, ItemText]:
    chosen = set(items)
    found = (sample for sample in _samples(path, sample_of) if sample.subset == subset and sample.item in chosen)
    return {sample.item: sample.words for sample in found}
