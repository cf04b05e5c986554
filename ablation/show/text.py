"""Texts from configurations and logs, made fit to be shown, and what each variant changes in words."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablation.config.lineage import Place, walk
from ablation.config.study import Change
from ablation.contract.reading import printable
from ablation.plan.plan_file import PlannedVariant


def plain(text: str) -> str:
    """Text to draw as it is, with control characters replaced by spaces."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def shown(value: Any) -> Any:
    """Jinja's `finalize`: escapes what a browser would obey (marks of text direction) or cannot show (ESC)."""
    return type(value)(printable(value)) if isinstance(value, str) else value


def wrapped(text: str, width: int) -> str:
    """Break at spaces into lines of at most `width` characters; a longer word is cut."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def shortened(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def describe_value(value: Any) -> str:
    """A configuration value as a person writes it in YAML."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return re.sub(r"e([+-])0+", r"e\1", f"{value:.10g}").replace("e+", "e")
        case list() | tuple():
            return f"[{', '.join(describe_value(item) for item in value)}]"
        case dict():
            return "{" + ", ".join(f"{key}: {describe_value(item)}" for key, item in value.items()) + "}"
    return str(value)


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
