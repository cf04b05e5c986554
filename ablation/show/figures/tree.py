"""The figure `lineage`: an indented tree, a row per variant, its change beside it, confounded edges marked."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from ablation.show.figures.style import INK, MUTED, WARN, grid
from ablation.show.lineage import Node
from ablation.show.text import plain, wrapped

LINE, INDENT, LETTER = 0.15, 0.26, 0.085  # of a line's height, of a generation and of a bold letter, in inches
_NOTE = "Square: confounded, more than one factor changed, so the edge cannot say which one mattered."


def draw_tree(title: str, nodes: Sequence[Node]) -> Figure:
    """Draw the variants in tree order."""
    labels = [_label(node) for node in nodes]
    tops, y = {}, 0.0
    for node, label in zip(nodes, labels, strict=True):
        tops[node.name] = y
        y += max(1, len(label)) * LINE + 0.1
    column = max(node.depth * INDENT + LETTER * len(node.name) for node in nodes) + 0.35
    figure, [[axes]] = grid(
        title, _NOTE if any(node.confounded for node in nodes) else "", (1, 1), (column + 4.5, y), left=0.2
    )
    axes.set_xlim(0, column + 4.5)  # inches
    axes.set_ylim(y, 0)
    axes.set_axis_off()
    depths = {node.name: node.depth * INDENT for node in nodes}
    for node, label in zip(nodes, labels, strict=True):
        x, top, color = depths[node.name], tops[node.name], WARN if node.confounded else INK
        if node.parent in tops:
            above = depths[node.parent]
            axes.plot([above, above, x], [tops[node.parent], top, top], color=MUTED, linewidth=1, zorder=1)
        marker, face = ("s", "white") if node.confounded else ("o", INK)
        axes.plot([x], [top], marker, color=color, markersize=5, markerfacecolor=face, clip_on=False)
        axes.text(x + 0.13, top, plain(node.name), size=8.5, weight="bold", va="center")
        for number, line in enumerate(label):
            axes.text(column, top + number * LINE, line, size=7.5, va="center", color=color if node.parent else MUTED)
    return figure


def _label(node: Node) -> list[str]:
    """The changes in lines of 78 characters, broken between changes where that is possible."""
    kept = [change.replace(" ", "\u00a0") if len(change) < 78 else change for change in node.changes]
    lines = plain(wrapped("; ".join(kept) or "root", 78).replace("\u00a0", " ")).split("\n")
    return [*lines[:-1], f"{lines[-1]}  ({len(node.factors)} factors)"] if node.confounded else lines
