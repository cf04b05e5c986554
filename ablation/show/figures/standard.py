"""The figures of every study: `curves`, `metric` (the main metric of every variant) and `lineage`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ablation.config.display_schema import CurveDefinition
from ablation.config.lineage import walk
from ablation.config.study_schema import Analysis
from ablation.show.figures.style import (
    INK,
    LEGEND,
    MUTED,
    PALETTE,
    WARN,
    Dash,
    beside,
    finite,
    grid,
    headed,
    key,
    look,
    names_down,
    nothing,
    numbered,
    room_for,
)
from ablation.show.tables import ComparisonTable, Row
from ablation.show.text import Node, plain, shortened, wrapped

Array = NDArray[np.float64]
MOST = 1 + len(PALETTE)  # lines of one panel: a parent and six that are compared with it
SIZE = (1.9, 1.25)  # inches
_CURVES_NOTE = (
    "Line: mean over seeds. Band: lowest to highest seed. Thin: some seeds have stopped. "
    "Black: what the others of its legend descend from."
)


@dataclass(frozen=True)
class Course:
    """One metric of one variant along the steps: mean, lowest and highest over seeds, and the number of seeds."""

    step: Array
    mean: Array
    low: Array
    high: Array
    seeds: Array

    @property
    def full(self) -> NDArray[np.bool_]:
        """Which steps every seed has reached."""
        return np.asarray(self.seeds == self.seeds.max())


def courses(frame: pd.DataFrame) -> dict[tuple[str, str], Course]:
    """Return {(variant, metric): course} of a frame of `Store.curves`, which is sorted by both."""
    keys = list(zip(frame["variant"], frame["metric"], strict=True))
    columns = [finite(frame[name]) for name in ("step", "mean", "low", "high", "seeds")]
    found, start = {}, 0
    for name, rows in groupby(keys):
        stop = start + len(list(rows))
        found[name] = Course(*(column[start:stop] for column in columns))
        start = stop
    return found


def families(nodes: Sequence[Node], most: int = MOST) -> list[list[str]]:
    """Split the tree into groups to draw together, so that every variant meets its parent in exactly one group.

    A group is a parent and its children, at most `most` names; an only child goes on with its own only child.
    """
    children = {place.name: place.children for place in walk({node.name: node.parent for node in nodes})}
    groups: list[list[str]] = []
    covered: set[str] = set()
    for node in nodes:
        if not children[node.name] or node.name in covered:
            continue
        group = [node.name, *children[node.name]]
        while len(children[node.name]) == 1 and len(children[group[-1]]) == 1 and len(group) < most:
            covered.add(group[-1])
            group += children[group[-1]]
        groups += [[node.name, *group[i : i + most - 1]] for i in range(1, len(group), most - 1)]
    roots = [node.name for node in nodes if node.parent is None]
    alone = [root for root in roots if not children[root]]
    return groups + [alone[i : i + most] for i in range(0, len(alone), most)]


def draw_curves(title: str, declared: Sequence[CurveDefinition], nodes: Sequence[Node], frame: pd.DataFrame) -> Figure:
    """Draw the declared curves that were logged: a row per family, a column per curve."""
    logged = set(frame["metric"])
    curves = [curve for curve in declared if curve.metric in logged]
    if not curves:
        figure, axes = grid(title, "", (1, 1), (3.0, 0.3))
        nothing(axes[0, 0], "no run has logged any of its curves yet")
        axes[0, 0].set_axis_off()
        return figure
    groups, found = families(nodes), courses(frame)
    right = LEGEND + room_for([f"{name} (no data)" for group in groups for name in group])
    figure, axes = grid(title, _CURVES_NOTE, (len(groups), len(curves)), SIZE, gaps=(0.5, 0.12), right=right)
    for column, curve in enumerate(curves):
        rows = frame[frame["metric"] == curve.metric]
        for row, group in enumerate(groups):
            panel = axes[row, column]
            _draw_family(panel, [found.get((name, curve.metric)) for name in group])
            panel.set_ylim(*_limits(rows))
            panel.set_xlim(*_room(rows["step"]))
            numbered(panel, x=row == len(groups) - 1, whole=True)
        headed(axes[0, column], curve.label, SIZE[0])
        axes[-1, column].set_xlabel("step")
    drawn = {variant for variant, _ in found}
    for group, panel in zip(groups, axes[:, -1], strict=True):
        beside(figure, panel, [key(name, look(index), name in drawn) for index, name in enumerate(group)])
    return figure


def _room(values: pd.Series, share: float = 0.04) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = share * (high - low) or 0.05 * abs(high) or 0.05
    return low - pad, high + pad


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    """The bulk: where one spike is ten times as high as the rest, it is cut off rather than the rest flattened."""
    values = pd.Series(finite(np.concatenate([rows["low"], rows["high"]])))
    low, high = float(values.quantile(0.005)), float(values.quantile(0.995))
    bulk, whole = high - low, values.max() - values.min()
    return (low - 0.1 * bulk, high + 0.1 * bulk) if 0 < bulk < whole / 3 else _room(values, 0.05)


def _draw_family(panel: Axes, members: Sequence[Course | None]) -> None:
    for index, course in enumerate(members):
        if course is not None:
            draw_course(panel, course, look(index), 1.1 if index else 1.6)


def draw_course(panel: Axes, course: Course, style: tuple[str, Dash], width: float = 1.1) -> None:
    """Draw a mean and, over the steps that every seed has reached, the band of its seeds; beyond them a thin line."""
    color, dash = style
    if course.seeds.max() > 1:
        panel.fill_between(course.step, course.low, course.high, where=course.full, color=color, alpha=0.1, linewidth=0)
    if not course.full.all():
        panel.plot(course.step, course.mean, color=color, linewidth=0.5, alpha=0.6)
    mean = np.where(course.full, course.mean, np.nan)
    panel.plot(
        course.step,
        mean,
        color=color,
        linewidth=width,
        linestyle=(0, dash) if dash else "-",
        marker="." if len(course.step) == 1 else "",
    )


_DOTS, _METRIC = 0.23, 4.6  # inches
_METRIC_NOTE = "Dot: one seed. Bar: mean of seeds."


def primary_column(table: ComparisonTable, analysis: Analysis) -> int:
    """The table's main column: the mean over subsets under the analysis' protocol, else the first."""
    for index, column in enumerate(table.columns):
        parts = column.metric.split("/")
        if len(parts) == 3 and parts[1] == "mean" and parts[0] == analysis.protocol:
            return index
    return 0


def draw_metric(table: ComparisonTable, analysis: Analysis) -> Figure:
    """Draw the primary metric of every variant."""
    index = primary_column(table, analysis)
    rows = [row for row in table.rows if not row.is_reference]
    references = [row for row in table.rows if row.is_reference and row.cells[index].mean is not None]
    published = " Diamond: published." if any(row.published[index] is not None for row in rows) else ""
    dashed = "".join(f" Dashed: {plain(row.name)}." for row in references)
    title = f"{table.title} ({table.scale} scale)"
    left = 0.2 + room_for([row.name for row in rows])
    figure, axes = grid(
        title, _METRIC_NOTE + published + dashed, (1, 1), (_METRIC, _DOTS * max(len(rows), 1)), left=left
    )
    panel = axes[0, 0]
    names_down(panel, [row.name for row in rows])
    for row in references:
        panel.axvline(finite(row.cells[index].mean), color=MUTED, linestyle=(0, (4, 2)), linewidth=1)
    for place, row in enumerate(rows):
        _draw_row(panel, place, row, index)
    panel.set_xlabel(plain(table.columns[index].metric))
    return figure


def _draw_row(panel: Axes, place: int, row: Row, index: int) -> None:
    cell, published = row.cells[index], row.published[index]
    if cell.mean is None:
        note = plain(shortened(row.status or ("failed" if cell.failed else "not measured"), 60))
        across = panel.get_yaxis_transform()
        panel.text(0.02, place, note, transform=across, va="center", color=MUTED, style="italic")
    else:
        panel.plot(finite(cell.values), [place] * len(cell.values), ".", color=PALETTE[0], markersize=5, alpha=0.6)
        panel.plot([finite(cell.mean)], [place], "|", color=INK, markersize=9, markeredgewidth=1.8)
    if published is not None:
        panel.plot([published], [place], "D", color=PALETTE[1], markersize=4, markerfacecolor="none")


LINE, INDENT, LETTER = 0.15, 0.26, 0.085  # of a line's height, of a generation and of a bold letter, in inches
_TREE_NOTE = "Square: confounded, more than one factor changed, so the edge cannot say which one mattered."


def draw_tree(title: str, nodes: Sequence[Node]) -> Figure:
    """Draw the variants in tree order."""
    labels = [_label(node) for node in nodes]
    tops, y = {}, 0.0
    for node, label in zip(nodes, labels, strict=True):
        tops[node.name] = y
        y += max(1, len(label)) * LINE + 0.1
    column = max(node.depth * INDENT + LETTER * len(node.name) for node in nodes) + 0.35
    figure, [[axes]] = grid(
        title, _TREE_NOTE if any(node.confounded for node in nodes) else "", (1, 1), (column + 4.5, y), left=0.2
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
