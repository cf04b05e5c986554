"""The tree of a study's variants: its order, and what each edge changed in a few words."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.config.lineage import Place, walk
from ablation.config.study import Change
from ablation.plan.plan_file import PlannedVariant
from ablation.show.text import describe_value


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


def lineage(variants: Sequence[PlannedVariant]) -> list[Node]:
    """Return the variants in tree order: a parent, then each child with its whole subtree."""
    named = {variant.name: variant for variant in variants}
    places = walk({variant.name: variant.parent for variant in variants})
    return [_node(place, named[place.name]) for place in places]


def _node(place: Place, variant: PlannedVariant) -> Node:
    changes = tuple(describe_change(change) for change in variant.changes)
    return Node(place.name, place.parent, place.depth, changes, variant.factors)


def describe_change(change: Change) -> str:
    """One changed leaf: `rcs.alphas [0, 1, 2] -> [0, 1.2, 2.5]`, marked where it cannot have an effect."""
    note = " (no effect)" if change.no_effect else ""
    return f"{change.key} {describe_value(change.old)} -> {describe_value(change.new)}{note}"
