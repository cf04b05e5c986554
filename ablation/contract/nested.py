"""Nested maps and their dotted keys: `{a: {b: 1}}` is `{"a.b": 1}`. Lists and scalars are leaves."""

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of every leaf; an empty mapping is a leaf."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
