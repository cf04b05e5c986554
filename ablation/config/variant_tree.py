"""The tree of variants, in which each variant has one parent or none, and functions that walk through it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A variant in the tree, `depth` generations below its root, with its parent and its children."""

    name: str
    parent: str | None
    depth: int
    children: tuple[str, ...]


def walk(parents: Mapping[str, str | None], siblings: Callable[[list[str]], Iterable[str]] = tuple) -> Iterator[Place]:
    """Yield the variants depth first: a parent, then each child followed by its descendants.

    A variant whose parent is not in `parents` is a root. Variants on or below a cycle have no root and are left out.

    Args:
        parents: the parent of each variant, or None.
        siblings: function that sorts the children of a parent, and the roots; by default in the order of `parents`.
    """
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(name)
    below = {parent: tuple(siblings(names)) for parent, names in children.items()}
    waiting: list[tuple[str, str | None, int]] = [(name, None, 0) for name in reversed(below.get(None, ()))]
    while waiting:
        name, parent, depth = waiting.pop()
        yield Place(name, parent, depth, below.get(name, ()))
        waiting += [(child, name, depth + 1) for child in reversed(below.get(name, ()))]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key in which v2 comes before v10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]


def in_natural_order(names: Iterable[str]) -> list[str]:
    """Return names in an order in which v2 comes before v10."""
    return sorted(names, key=natural)


def ancestors(name: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return a variant's parent, the parent's parent, and so on to the root; in a cycle, each variant once."""
    ancestry: dict[str, None] = {}
    parent = parents.get(name)
    while parent is not None and parent in parents and parent not in ancestry:
        ancestry[parent] = None
        parent = parents[parent]
    return list(ancestry)


def compared(comparisons: str | Sequence[tuple[str, str]], parents: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """Return the pairs (child, parent or root) to compare, for the value of `analysis.comparisons`."""
    if not isinstance(comparisons, str):
        return [(child, parent) for child, parent in comparisons if child in parents and parent in parents]
    if comparisons == "root":
        return [(name, above[-1]) for name in parents if (above := ancestors(name, parents))]
    return [(name, parent) for name, parent in parents.items() if parent is not None]
