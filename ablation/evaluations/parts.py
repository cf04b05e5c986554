"""What readers share whose files are walked item by item: means over repeats, and one digest for what was asked."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablation.contract.errors import ConfigError
from ablation.evaluations.sheet import REPEATED, Digests, check_values, short


def digest(*parts: str) -> int:
    """64 bits of what was asked."""
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest())


def mean_over_repeats(path: Path, metric: str, values: Mapping[str, Mapping[int, float]]) -> tuple[pd.Index, Any, int]:
    """From {item: {repeat: value}} to items, sorted, with their means, and the number of repeats.

    Raises:
        ConfigError: an item was asked more often than another, or a value is not finite.
    """
    if not values:
        raise ConfigError(path, metric, None, "no item has it", "was the evaluation scored?")
    items = pd.Index(sorted(values))
    counts = {item: len(values[item]) for item in items}
    most, least = max(counts, key=lambda item: counts[item]), min(counts, key=lambda item: counts[item])
    if counts[most] != counts[least]:
        problem = f"item {short(most)} was asked {counts[most]} times, item {short(least)} {counts[least]}"
        raise ConfigError(path, "", None, problem, "evaluate all of them as often")
    means = np.array([float(np.mean(list(values[item].values()))) for item in items])
    check_values(path, metric, items, means)
    return items, means, counts[most]


def refuse_twice(path: Path, item: str, repeat: int) -> None:
    """Refuse a row that stands twice."""
    raise ConfigError(path, "", None, f"item {short(item)} stands twice (repeat {repeat})", REPEATED)


def asked(items: Sequence[str], by_name: Mapping[str, Mapping[str, int]]) -> dict[str, Digests]:
    """Digests in the order of the items; what an item lacks is 0."""
    return {
        name: np.array([digests.get(item, 0) for item in items], dtype=np.uint64)
        for name, digests in by_name.items()
        if digests
    }
