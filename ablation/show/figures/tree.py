"""The figure `lineage`: an indented tree, a row per variant, its change beside it, confounded edges marked."""

from collections.abc import Sequence

from ablation.show.figures.letters import text_width
from ablation.show.figures.panel import EDGE, LINE_HEIGHT
from ablation.show.figures.sheet import Dots, Line, Sheet, xy
from ablation.show.figures.style import HEADING, INK, LABEL, MUTED, TITLE, WARN
from ablation.show.lineage import Node
from ablation.show.text import plain, wrapped

INDENT, FIRST = 20.0, 34.0  # of a generation; from the top to the first row
_LEGEND = "confounded: more than one factor changed, so the edge cannot say which one mattered"


def draw_tree(title: str, nodes: Sequence[Node]) -> Sheet:
    """Draw the variants in tree order."""
    names = [plain(node.name) for node in nodes]
    labels = [_label(node) for node in nodes]
    known = zip(nodes, names, strict=True)
    ends = [24 + node.depth * INDENT + text_width(name, HEADING, bold=True) for node, name in known]
    column = max(ends) + 18
    heights = [max(1, len(label)) * LINE_HEIGHT * LABEL + 6.0 for label in labels]
    tops = [FIRST + sum(heights[:i]) for i in range(len(nodes))]
    widest = max(text_width(line, LABEL) for label in labels for line in label)
    confounded = any(node.confounded for node in nodes)
    least = 30 + text_width(_LEGEND, LABEL) if confounded else text_width(plain(title), TITLE, bold=True)
    height = FIRST + sum(heights) + (16.0 if confounded else 4.0)
    sheet = Sheet(round(max(column + widest, least) + 2 * EDGE, 2), round(height, 2), plain(title))
    sheet.text(EDGE + 2, EDGE + TITLE, plain(title), TITLE, bold=True)
    place = {node.name: (14 + node.depth * INDENT, top) for node, top in zip(nodes, tops, strict=True)}
    for node in nodes:
        if node.parent is not None:
            (above, start), (x, y) = place[node.parent], place[node.name]
            sheet.marks.append(Line(xy([above, above, x], [start, y, y]), MUTED, 1.0))
    for node, name, label in zip(nodes, names, labels, strict=True):
        _draw_node(sheet, node, name, label, (*place[node.name], column))
    if confounded:
        y = height - 12
        sheet.marks.append(Dots(xy([14], [y]), WARN, 2.5, "square", "white", 1.0))
        sheet.text(26, y + 0.36 * LABEL, _LEGEND, LABEL, color=WARN)
    return sheet


def _label(node: Node) -> list[str]:
    """The changes in lines of 78 characters, broken between changes where that is possible."""
    kept = [change.replace(" ", "\u00a0") if len(change) < 78 else change for change in node.changes]
    lines = plain(wrapped("; ".join(kept) or "root", 78).replace("\u00a0", " ")).split("\n")
    return [*lines[:-1], f"{lines[-1]}  ({len(node.factors)} factors)"] if node.confounded else lines


def _draw_node(sheet: Sheet, node: Node, name: str, label: Sequence[str], at: tuple[float, float, float]) -> None:
    x, y, column = at
    color = WARN if node.confounded else INK
    shape, fill = ("square", "white") if node.confounded else ("dot", INK)
    sheet.marks.append(Dots(xy([x], [y]), color, 2.5, shape, fill, 1.0))  # type: ignore[arg-type]
    sheet.text(x + 9, y + 0.36 * HEADING, name, HEADING, bold=True)
    for number, line in enumerate(label):
        below = y + 0.36 * LABEL + number * LINE_HEIGHT * LABEL
        sheet.text(column, below, line, LABEL, color=color if node.parent else MUTED)
