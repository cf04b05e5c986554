"""The tree of a study's variants: its order, what each edge changed in a few words, and its figure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracker.config.lineage import Place, walk
from tracker.config.study import Change
from tracker.plan.plan_file import PlannedVariant
from tracker.show.figures.style import INK, MUTED, WARN, plain, save_figure, wrapped
from tracker.store.database import Store

ROW_HEIGHT = 0.19  # inches of one line of text
INDENT = 0.28  # inches a generation


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


def draw_lineage(store: Store, study: str, folder: Path) -> None:
    """Write `lineage.{svg,png}`: an indented tree, one row a variant, its change beside it, confounded edges marked."""
    nodes = lineage(store.variants(study))
    text_column = max(node.depth * INDENT + 0.075 * len(node.name) for node in nodes) + 0.45
    labels = [_label(node) for node in nodes]
    heights = [max(1, label.count("\n") + 1) * ROW_HEIGHT + 0.1 for label in labels]
    longest = max(len(line) for label in labels for line in label.split("\n")) + len("  (9 factors)")
    width, height = max(text_column + 0.06 * longest, 5.6), sum(heights) + 0.75
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    axes.text(0.15, 0.22, plain(store.study(study).title), fontsize=10, weight="bold", va="center", color=INK)
    tops = [0.55 + sum(heights[:i]) for i in range(len(nodes))]
    _draw_rows(axes, nodes, labels, tops, text_column)
    if any(node.confounded for node in nodes):
        axes.plot(0.2, height - 0.14, marker="s", color=WARN, markersize=5, fillstyle="none")
        legend = "confounded: more than one factor changed, so the edge cannot say which one mattered"
        axes.text(0.35, height - 0.14, legend, fontsize=7, color=WARN, va="center")
    save_figure(figure, folder / "lineage")


def _label(node: Node) -> str:
    """The changes in lines of 78 characters, broken between changes where that is possible."""
    kept = [change.replace(" ", "\u00a0") if len(change) < 78 else change for change in node.changes]
    return wrapped("; ".join(kept) or "root", 78).replace("\u00a0", " ")


def _draw_rows(axes: Axes, nodes: list[Node], labels: list[str], tops: list[float], text_column: float) -> None:
    place = {node.name: (0.2 + node.depth * INDENT, top) for node, top in zip(nodes, tops, strict=True)}
    for node, label in zip(nodes, labels, strict=True):
        x, y = place[node.name]
        colour = WARN if node.confounded else INK
        if node.parent is not None:
            above, start = place[node.parent]
            axes.plot([above, above, x], [start, y, y], color=MUTED, linewidth=1, zorder=1, solid_joinstyle="miter")
        fill = "white" if node.confounded else INK
        marker = "s" if node.confounded else "o"
        axes.plot(x, y, marker, color=colour, markersize=5, zorder=3, markerfacecolor=fill)
        axes.text(x + 0.12, y, plain(node.name), fontsize=8.5, weight="bold", va="center_baseline", color=INK)
        note = f"{label}  ({len(node.factors)} factors)" if node.confounded else label
        axes.text(text_column, y - 0.06, plain(note), fontsize=7.5, va="top", color=colour if node.parent else MUTED)
