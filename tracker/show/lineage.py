"""The tree of a study's variants: its order, and what each edge changed in a few words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.show.text import describe_value


@dataclass(frozen=True)
class Node:
    """One variant in the tree: `depth` generations below its root, and what changed from its parent."""

    name: str
    parent: str | None
    depth: int
    changes: tuple[str, ...]
    factors: tuple[str, ...]

    @property
    def confounded(self) -> bool:
        """Whether the edge to the parent changes more than one factor."""
        return self.parent is not None and len(self.factors) > 1


def lineage(variants: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Return the variants in tree order: a parent, then each child with its whole subtree."""
    names = {variant["name"] for variant in variants}
    children: dict[str | None, list[Mapping[str, Any]]] = {}
    for variant in variants:
        parent = variant["parent"] if variant["parent"] in names else None
        children.setdefault(parent, []).append(variant)

    def walk(parent: str | None, depth: int) -> Iterator[Node]:
        for variant in children.get(parent, []):
            changes = tuple(describe_change(change) for change in variant["changes"])
            yield Node(variant["name"], parent, depth, changes, tuple(variant["factors"]))
            yield from walk(variant["name"], depth + 1)

    return list(walk(None, 0))


def describe_change(change: Mapping[str, Any]) -> str:
    """One changed leaf: `rcs.alphas [0, 1, 2] -> [0, 1.2, 2.5]`, marked where it cannot have an effect."""
    note = " (no effect)" if change.get("no_effect") else ""
    return f"{change['key']} {describe_value(change['from'])} -> {describe_value(change['to'])}{note}"
