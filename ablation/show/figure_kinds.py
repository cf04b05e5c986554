"""The kinds of figures. Every study has `metric` (the primary metric of every variant) and `variant-tree`.

A study may declare `curves`, `lines`, `each`, `bars`, `subsets` and `distributions`.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from ablation.config.study_schema import Analysis, CurveDefinition, FigureAxis, FigureDefinition
from ablation.config.variant_tree import walk
from ablation.contract.numbers import percent
from ablation.show.figure_style import (
    FAINT,
    INK,
    LETTER,
    MUTED,
    PALETTE,
    WARN,
    Dash,
    beside,
    finite,
    grid,
    headed,
    key,
    line_style,
    named,
    names_down,
    nothing,
    numbered,
    panels,
)
from ablation.show.tables import Cell, ComparisonTable, Row, primary_column, primary_label
from ablation.show.text import Node, plain, shortened, wrapped
from ablation.store.database import Store

MOST = 1 + len(PALETTE)  # lines of one panel: a parent and six that are compared with it
SIZE = (1.9, 1.25)  # inches
_CURVES_NOTE = (
    "Line: mean over seeds. Band: from the lowest to the highest seed. Thin line: after some seeds have ended. "
    "Black line: the ancestor of the other variants in the legend."
)


def courses(frame: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Split a frame of `Store.curves` into {(variant, metric): rows}.

    The new column `full` says whether all seeds reached the step.
    """
    frame = frame.assign(**{name: finite(frame[name]) for name in ("step", "mean", "low", "high")})
    reached = frame.groupby(["variant", "metric"])["seeds"].transform("max")
    return dict(tuple(frame.assign(full=frame["seeds"] == reached).groupby(["variant", "metric"])))


def families(nodes: Sequence[Node], most: int = MOST) -> list[list[str]]:
    """Split the tree into groups of at most `most` names, so that every variant is in a group with its parent.

    A group is a parent with its children. A chain of only children forms one group, and so do roots without children.
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
        nothing(axes[0, 0], "no run has logged any of these curves yet")
        axes[0, 0].set_axis_off()
        return figure
    groups, course_of = families(nodes), courses(frame)
    figure, axes = grid(title, _CURVES_NOTE, (len(groups), len(curves)), SIZE, (0.5, 0.12))
    for column, curve in enumerate(curves):
        rows = frame[frame["metric"] == curve.metric]
        for row, group in enumerate(groups):
            panel = axes[row, column]
            for index, name in enumerate(group):
                if (name, curve.metric) in course_of:
                    draw_course(panel, course_of[name, curve.metric], line_style(index), 1.1 if index else 1.6)
            panel.set_ylim(*_limits(rows))
            panel.set_xlim(*_room(rows["step"]))
            numbered(panel, x=row == len(groups) - 1, whole=True)
        headed(axes[0, column], curve.label, SIZE[0])
        axes[-1, column].set_xlabel("step")
    drawn = {variant for variant, _ in course_of}
    for group, panel in zip(groups, axes[:, -1], strict=True):
        beside(panel, [key(name, line_style(index), name in drawn) for index, name in enumerate(group)])
    return figure


def _room(values: pd.Series, share: float = 0.04) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = share * (high - low) or 0.05 * abs(high) or 0.05
    return low - pad, high + pad


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Return axis limits for the bulk of the values, so that a high spike does not flatten the rest of the curve."""
    values = pd.Series(finite(np.concatenate([rows["low"], rows["high"]])))
    low, high = float(values.quantile(0.005)), float(values.quantile(0.995))
    bulk, whole = high - low, values.max() - values.min()
    return (low - 0.1 * bulk, high + 0.1 * bulk) if 0 < bulk < whole / 3 else _room(values, 0.05)


def draw_course(panel: Axes, course: pd.DataFrame, style: tuple[str, Dash], width: float = 1.1) -> None:
    """Draw the mean over seeds as a line, and their range as a band; the line is thin after some seeds have ended."""
    color, dash = style
    step, full = course["step"], course["full"]
    if course["seeds"].max() > 1:
        panel.fill_between(step, course["low"], course["high"], where=full, color=color, alpha=0.1, linewidth=0)
    if not full.all():
        panel.plot(step, course["mean"], color=color, linewidth=0.5, alpha=0.6)
    marker = "." if len(course) == 1 else ""
    panel.plot(step, course["mean"].where(full), color=color, linewidth=width, linestyle=dash, marker=marker)


_DOTS, _METRIC = 0.23, 4.6  # inches
_METRIC_NOTE = "Dot: one seed; lines join paired runs with the same seed. Bar: mean over seeds."


def draw_metric(table: ComparisonTable, analysis: Analysis) -> Figure:
    """Draw the primary metric of every variant."""
    index = primary_column(table, analysis)
    rows = [row for row in table.rows if not row.is_reference]
    references = [row for row in table.rows if row.is_reference and row.cells[index].mean is not None]
    published = " Diamond: published." if any(row.published[index] is not None for row in rows) else ""
    dashed = "".join(f" Dashed: {plain(row.name)}." for row in references)
    title = f"{table.title} ({'imported' if table.scale == 'imported' else f'{table.scale} scale'})"
    size = (_METRIC, _DOTS * max(len(rows), 1))
    figure, axes = grid(title, _METRIC_NOTE + published + dashed, (1, 1), size)
    panel = axes[0, 0]
    names_down(panel, [row.name for row in rows])
    for row in references:
        panel.axvline(finite(row.cells[index].mean), color=MUTED, linestyle=(0, (4, 2)), linewidth=1)
    if (analysis.seeds or "paired") == "paired":
        _join_seeds(panel, [row.cells[index] for row in rows])
    for place, row in enumerate(rows):
        _draw_row(panel, place, row, index)
    panel.set_xlabel(plain(primary_label(table, analysis)))
    return figure


def _join_seeds(panel: Axes, cells: Sequence[Cell]) -> None:
    """Draw a line per seed through the rows; a row without the seed interrupts the line."""
    for seed in sorted({seed for cell in cells for seed in cell.seeds}):
        found = [dict(zip(cell.seeds, cell.values, strict=False)).get(seed, math.nan) for cell in cells]
        panel.plot(finite(found), range(len(cells)), color=MUTED, linewidth=0.5, alpha=0.5, zorder=1)


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


LINE, INDENT, BOLD = 0.15, 0.26, 0.085  # of a line's height, of a generation and of a bold letter, in inches
_TREE_NOTE = "Square: confounded; more than one factor changed, so the comparison cannot show which one mattered."


def draw_tree(title: str, nodes: Sequence[Node]) -> Figure:
    """Draw the variants as a tree, each with its changes."""
    labels = [_label(node) for node in nodes]
    tops, y = {}, 0.0
    for node, label in zip(nodes, labels, strict=True):
        tops[node.name] = y
        y += max(1, len(label)) * LINE + 0.1
    column = max(node.depth * INDENT + BOLD * len(node.name) for node in nodes) + 0.35
    figure, [[axes]] = grid(
        title, _TREE_NOTE if any(node.confounded for node in nodes) else "", (1, 1), (column + 4.5, y)
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
    """Return the changes of a node as lines of at most 78 characters, broken between changes if possible."""
    kept = [change.replace(" ", "\u00a0") if len(change) < 78 else change for change in node.changes]
    lines = plain(wrapped("; ".join(kept) or "root", 78).replace("\u00a0", " ")).split("\n")
    return [*lines[:-1], f"{lines[-1]}  ({len(node.factors)} factors)"] if node.confounded else lines


_LINES_NOTE = "Line: mean over seeds. Band: from the lowest to the highest seed."
_EACH_NOTE = (
    "Coloured: the variant (line: mean over seeds; band: from the lowest to the highest seed). Black: its parent. "
    "Grey: the other variants."
)
_LINES, _EACH = (2.1, 1.45), (1.9, 1.15)  # sizes of panels in inches


def draw_lines(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric with a line per variant."""
    drawn, axes = panels(title, _LINES_NOTE, len(figure.panels), figure.columns, size=_LINES, gaps=(0.55, 0.65))
    course_of = courses(_curves(store, study, [panel.metric for panel in figure.panels], figure.x))
    for panel, declared in zip(axes, figure.panels, strict=True):
        drawn_here = [(i, variant) for i, variant in enumerate(variants) if (variant, declared.metric) in course_of]
        for index, variant in drawn_here:
            draw_course(panel, course_of[variant, declared.metric], line_style(index))
        if not drawn_here:
            nothing(panel)
        elif declared.log:
            panel.set_yscale("log", nonpositive="mask")
        headed(panel, declared.label, _LINES[0])
        panel.set_xlabel("step" if figure.x is None else figure.x.label)
        numbered(panel, whole=figure.x is None)
    beside(
        axes[min(figure.columns, len(axes)) - 1], [key(name, line_style(index)) for index, name in enumerate(variants)]
    )
    return drawn


def draw_each(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw one metric in a panel per variant.

    Each panel also shows the variant's parent and, faintly, all other variants.
    """
    [declared], parents = figure.panels, {variant.name: variant.parent for variant in store.variants(study)}
    columns = min(figure.columns, len(variants))
    drawn, axes = panels(
        f"{title}: {declared.label}", _EACH_NOTE, len(variants), columns, size=_EACH, gaps=(0.15, 0.42)
    )
    frame = _curves(store, study, [declared.metric], figure.x)
    course_of = {variant: course for (variant, _), course in courses(frame).items()}
    for panel, variant in zip(axes, variants, strict=True):
        parent = parents[variant]
        for other in variants:
            if other in course_of and other not in (variant, parent):
                panel.plot(course_of[other]["step"], course_of[other]["mean"], color=FAINT, linewidth=0.6)
        for name, color in ((parent, INK), (variant, PALETTE[0])):
            if name in course_of:
                draw_course(panel, course_of[name], (color, "-"))
        if variant not in course_of:
            nothing(panel)
        if declared.log and course_of:
            panel.set_yscale("log", nonpositive="mask")
        headed(panel, variant if parent is None else f"{variant}, from {parent}", _EACH[0])
    lowest, highest = min(panel.get_ylim()[0] for panel in axes), max(panel.get_ylim()[1] for panel in axes)
    for place, panel in enumerate(axes):
        under = place + columns >= len(variants)  # the last panel of its column
        panel.set_ylim(lowest, highest)
        numbered(panel, x=under, y=place % columns == 0, whole=figure.x is None)
        panel.set_xlabel(("step" if figure.x is None else figure.x.label) if under else "")
    return drawn


def _curves(store: Store, study: str, metrics: Sequence[str], x: FigureAxis | None) -> pd.DataFrame:
    """Return DataFrame(variant, metric, step, mean, low, high, seeds); if `x` is given, `step` has the values of `x`.

    Steps at which the metric of `x` was not logged are left out.
    """
    frame = store.curves(study, metrics)
    if x is None:
        return frame
    position = store.curves(study, [x.metric]).set_index(["variant", "step"])["mean"]
    places = pd.MultiIndex.from_frame(frame[["variant", "step"]])
    return frame.assign(step=position.reindex(places).to_numpy()).dropna(subset=["step"])


_BAR, _BARS = 0.21, 2.5  # height of a bar with its gap, width of a panel, in inches
_BARS_NOTE = "Bar: mean over steps and seeds. Dots: single seeds."
_BARS_QUERY = """SELECT variant, seed, metric, avg(value) AS value FROM curves
            WHERE study = ? AND list_contains(?, metric) AND isfinite(value) GROUP BY ALL ORDER BY ALL"""


def draw_bars(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric, side by side, with a bar per variant."""
    rows = store.sql(_BARS_QUERY, [study, [panel.metric for panel in figure.panels]])
    seeds = {
        panel_and_variant: finite(group["value"]) for panel_and_variant, group in rows.groupby(["metric", "variant"])
    }
    drawn, axes = grid(title, _BARS_NOTE, (1, len(figure.panels)), (_BARS, _BAR * len(variants)), (0.2, 0.0))
    for panel, declared in zip(axes.flat, figure.panels, strict=True):
        names_down(panel, variants)
        panel.axvline(0.0, color=MUTED, linewidth=0.8)
        for place, variant in enumerate(variants):
            values = seeds.get((declared.metric, variant))
            if values is None:
                panel.text(0.0, place, " no data", va="center", color=MUTED, style="italic")
                continue
            panel.barh(place, values.mean(), 0.6, color=INK if not place else PALETTE[0], alpha=0.55)
            panel.plot(values, [place] * len(values), ".", color=INK, markersize=3)
        headed(panel, declared.label, _BARS)
        panel.tick_params(labelleft=panel is axes[0, 0])
    return drawn


_SUBSETS = (2.3, 2.2)  # inches


def draw_subsets(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric `<protocol>/*/<name>` with a line per variant over the subsets; the first line is black.

    Each panel has its own scale and legend. Numeric subsets are placed at their value, others in the order of the
    analysis plan; the subset `mean` is left out.
    """
    room = 0.16 * max(len(panel.variants or variants) for panel in figure.panels)
    gaps = (0.6, 0.9 + room)
    drawn, axes = panels(
        title, _LINES_NOTE, len(figure.panels), figure.columns, size=_SUBSETS, gaps=gaps, below=0.6 + room
    )
    results, order = store.results(study), store.study(study).analysis.subsets
    for panel, declared in zip(axes, figure.panels, strict=True):
        rows = _along_subsets(results, declared.metric)
        chosen = list(declared.variants or variants)
        places = _places(list(dict.fromkeys(rows["subset"])), order)
        rows["x"] = rows["subset"].map(places)
        for index, variant in enumerate(chosen):
            line = rows[rows["variant"] == variant].sort_values("x")
            if line.empty:
                continue
            (color, dash), (mean, low, high) = (
                line_style(index),
                (finite(line[name]) for name in ("mean", "low", "high")),
            )
            panel.fill_between(line["x"], low, high, color=color, alpha=0.12, linewidth=0)
            panel.plot(line["x"], mean, color=color, linewidth=1.2, linestyle=dash, marker=".", markersize=4)
        headed(panel, declared.label, _SUBSETS[0])
        numbered(panel)
        panel.set_xlabel(plain(figure.axis or "subset"))
        if rows.empty:
            nothing(panel)
            continue
        panel.xaxis.set_major_locator(FixedLocator(list(places.values())))
        panel.set_xticklabels([plain(name) for name in places])
        known = set(rows["variant"])
        keys = [key(name, line_style(index), name in known) for index, name in enumerate(chosen)]
        panel.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, -0.45 / _SUBSETS[1]))
    return drawn


def _along_subsets(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return DataFrame(variant, subset, mean, low, high) over the seeds with a finite value."""
    parts = results["metric"].str.split("/", expand=True).reindex(columns=range(3))
    protocol, _, name = metric.split("/")
    chosen = (parts[0] == protocol) & (parts[2] == name) & (parts[1] != "mean") & results["value"].notna()
    frame = results[chosen].assign(subset=parts[1][chosen])
    grouped = frame.groupby(["variant", "subset"])["value"]
    return pd.DataFrame({"mean": grouped.mean(), "low": grouped.min(), "high": grouped.max()}).reset_index()


def _places(subsets: Sequence[str], order: Sequence[str]) -> dict[str, float]:
    """Return {subset: horizontal position}, from left to right."""
    try:
        return {name: float(name) for name in sorted(subsets, key=float)}
    except ValueError:
        ordered = [name for name in order if name in subsets]
        return {name: float(n) for n, name in enumerate([*ordered, *sorted(set(subsets) - set(ordered))])}


_BOX, _BOXES = 0.2, 4.2  # height of a box with its gap, width of a panel, in inches
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BOXES_NOTE = (
    "Line: middle 90% of the values of all seeds. Box: middle half. Mark: median. "
    "Number: share of the variant's values that are in this subset."
)
_BOXES_QUERY = """SELECT variant, subset, quantile_cont(value, ?) AS quantiles,
                count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share
            FROM run_stages JOIN items USING (key)
            WHERE study = ? AND protocol = ? AND name = ? AND isfinite(value)
            GROUP BY variant, subset ORDER BY variant, subset"""


def draw_distributions(
    store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str
) -> Figure:
    """Draw a panel per metric `<protocol>/*/<name>` with box plots of item values, which may come from any stage."""
    chosen = [list(panel.variants or variants) for panel in figure.panels]
    frames = [_quantiles(store, study, panel.metric) for panel in figure.panels]
    subsets = list(dict.fromkeys(name for frame in frames for name in sorted(frame["subset"])))
    height = _BOX * max(map(len, chosen)) * max(1, len(subsets))
    gap = 0.2 + LETTER * max(len(named(name)) for names in chosen for name in names)
    drawn, axes = grid(title, _BOXES_NOTE, (1, len(figure.panels)), (_BOXES, height), (gap, 0.0))
    for panel, declared, frame, names in zip(axes.flat, figure.panels, frames, chosen, strict=True):
        names_down(panel, names)
        _draw_boxes(panel, frame, names, subsets)
        headed(panel, declared.label, _BOXES)
        if frame.empty:
            nothing(panel)
    keys = [
        Line2D([], [], color=PALETTE[place % len(PALETTE)], linewidth=5, label=plain(name.replace("_", " ")))
        for place, name in enumerate(subsets)
    ]
    beside(axes[0, -1], keys)
    return drawn


def _draw_boxes(panel: Axes, frame: pd.DataFrame, variants: Sequence[str], subsets: Sequence[str]) -> None:
    """Draw one row per variant, with one box per subset from top to bottom."""
    height = 0.8 / max(1, len(subsets))
    boxes = {(row["variant"], row["subset"]): row for row in frame.to_dict("records")}
    for place, variant in enumerate(variants):
        if boxes and not any((variant, subset) in boxes for subset in subsets):
            across = panel.get_yaxis_transform()
            panel.text(0, place, "no data", transform=across, va="center", color=MUTED, style="italic")
        for number, subset in enumerate(subsets):
            if (variant, subset) not in boxes:
                continue
            row, color = boxes[variant, subset], PALETTE[number % len(PALETTE)]
            y = place - 0.4 + height * (number + 0.5)
            p05, p25, p50, p75, p95 = finite(row["quantiles"]).tolist()
            panel.plot([p05, p95], [y, y], color=color, linewidth=1)
            panel.barh(y, p75 - p25, 0.55 * height, left=p25, color=color, alpha=0.5)
            panel.plot([p50], [y], "|", color=color, markersize=6, markeredgewidth=1.6)
            panel.annotate(
                percent(row["share"]), (p95, y), (4, 0), textcoords="offset points", va="center", size=6, color=color
            )


def _quantiles(store: Store, study: str, metric: str) -> pd.DataFrame:
    """Return DataFrame(variant, subset, quantiles, share) of the finite values of all seeds."""
    protocol, _, name = metric.split("/")
    return store.sql(_BOXES_QUERY, [list(QUANTILES), study, protocol, name])
