"""The figures of a study: learning curves, the primary metric of every run, and the lineage."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tracker.config.lineage import walk
from tracker.config.study_schema import Analysis
from tracker.show.figures.declared import draw_figures
from tracker.show.figures.style import DASHES, FAINT, INK, MUTED, PALETTE, STYLE, plain, save_figure, shortened, wrapped
from tracker.show.lineage import Node, draw_lineage, lineage
from tracker.show.tables import Row, Table, build_table
from tracker.store.database import Store

MOST = 1 + len(PALETTE)  # lines of one panel: a parent and six that are compared with it
NAME_WIDTH = 26


def render_figures(database: Path, reports_dir: Path) -> list[Path]:
    """Write `<reports_dir>/<study>/{curves,metric,lineage}.{svg,png}` and the study's own figures; return the paths.

    A study without curves has no such figure; one whose curves nothing has logged yet has one that says so.
    """
    written: list[Path] = []
    with Store(database) as store, mpl.rc_context(STYLE):
        for study in store.studies():
            folder = reports_dir / study
            stems = ["metric", "lineage"]
            draw_metric(build_table(store, study), store.study(study).analysis, folder)
            draw_lineage(store, study, folder)
            if draw_curves(store, study, folder):
                stems.append("curves")
            stems += draw_figures(store, study, folder)
            written += [folder / f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")]
    return written


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


def draw_curves(store: Store, study: str, folder: Path) -> bool:
    """Write `curves.{svg,png}`: a panel per family and metric, the fewer of them as columns. False: it has none."""
    curves = [curve.model_dump() for curve in store.study(study).curves]
    frame = store.curves(study, [curve["metric"] for curve in curves])
    if not curves:
        return False
    curves = [curve for curve in curves if (frame["metric"] == curve["metric"]).any()]
    title = plain(f"{store.study(study).title} ({store.meta()['scale']} scale)")
    if not curves:
        figure = Figure(figsize=(5, 0.9))
        figure.text(0.03, 0.7, title, fontsize=10, weight="bold")
        figure.text(0.03, 0.3, "no run has logged any of its curves yet", fontsize=8, color=MUTED)
        save_figure(figure, folder / "curves")
        return True
    groups = families(lineage(store.variants(study)))
    across = len(groups) < len(curves)  # families are columns
    rows, columns = (len(curves), len(groups)) if across else (len(groups), len(curves))
    size = (2.35 * columns + (0.6 if across else 1.9), 1.6 * rows + (1.6 if across else 0.75))
    figure = Figure(figsize=size, layout="constrained")
    shared: dict[str, Any] = {"sharex": "row", "sharey": "row"} if across else {"sharex": "col", "sharey": "col"}
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    panels = grid.T if across else grid  # [family, metric]
    lines = {key: group for key, group in frame.groupby(["variant", "metric"], sort=False)}
    for group, row in zip(groups, panels, strict=True):
        for curve, axes in zip(curves, row, strict=True):
            _draw_family(axes, group, {v: lines.get((v, curve["metric"])) for v in group})
        _legend(row[0] if across else row[-1], group, set(frame["variant"]), above=across)
    for curve, column in zip(curves, panels.T, strict=True):
        label = plain(wrapped(curve["label"], 18 if across else 34))
        _limit(column[0], frame[frame["metric"] == curve["metric"]])
        if across:
            column[0].set_ylabel(label, weight="bold")
        else:
            column[0].set_title(label, fontsize=8.5, weight="bold", loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("step")
    figure.suptitle(title, fontsize=10, weight="bold", x=0.01, ha="left")
    figure.supxlabel(_CURVES_NOTE, fontsize=7, color=MUTED, x=0.01, ha="left")
    save_figure(figure, folder / "curves")
    return True


_CURVES_NOTE = (
    "Line: mean over seeds. Band: lowest to highest seed. Thin: some seeds have stopped. "
    "Black: what the others of its legend descend from."
)


def _draw_family(axes: Axes, group: Sequence[str], lines: Mapping[str, pd.DataFrame | None]) -> None:
    for index, variant in enumerate(group):
        line = lines[variant]
        if line is None:
            continue
        colour, dash = _look(index)
        steps, seeds = line["step"].to_numpy(), line["seeds"].to_numpy()
        mean = line["mean"].to_numpy()
        full = seeds == seeds.max()
        if seeds.max() > 1:
            low, high = line["low"].to_numpy(), line["high"].to_numpy()
            axes.fill_between(steps, low, high, where=full, color=colour, alpha=0.11, linewidth=0)
        axes.plot(steps, mean, color=colour, linewidth=0.5, alpha=0.6)
        width, order = (1.6, 2) if index == 0 else (1.1, 3)
        axes.plot(
            steps,
            [m if f else math.nan for m, f in zip(mean, full, strict=True)],
            color=colour,
            linestyle=dash,
            linewidth=width,
            zorder=order,
        )
        if len(steps) == 1:
            axes.plot(steps, mean, "o", color=colour, markersize=3)
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.tick_params(labelsize=7, length=2)


def _look(index: int) -> tuple[str, Any]:
    return (INK, "-") if index == 0 else (PALETTE[index - 1], DASHES[index - 1])


def _legend(axes: Axes, group: Sequence[str], drawn: set[str], *, above: bool) -> None:
    handles = []
    for index, variant in enumerate(group):
        colour, dash = _look(index)
        name = plain(shortened(variant, NAME_WIDTH))
        label = name if variant in drawn else f"{name} (no data)"
        shown: dict[str, Any] = {"color": colour, "linestyle": dash} if variant in drawn else {"color": FAINT}
        handles.append(Line2D([], [], linewidth=1.4, label=label, **shown))
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
    if above:
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1.02), "borderaxespad": 0}
    axes.legend(handles=handles, frameon=False, fontsize=7, handlelength=2.6, **place)


def _limit(axes: Axes, frame: pd.DataFrame) -> None:
    """Show the bulk: where one spike is ten times as high as the rest, it is cut off rather than the rest flattened."""
    low, high = float(frame["low"].quantile(0.005)), float(frame["high"].quantile(0.995))
    bulk, whole = high - low, frame["high"].max() - frame["low"].min()
    if 0 < bulk < whole / 3:
        axes.set_ylim(low - 0.1 * bulk, high + 0.1 * bulk)


def primary_column(table: Table, analysis: Analysis) -> int:
    """The table's main column: the mean over subsets under the analysis' protocol, else the first."""
    for index, column in enumerate(table.columns):
        parts = column.metric.split("/")
        if len(parts) == 3 and parts[1] == "mean" and parts[0] == analysis.protocol:
            return index
    return 0


def draw_metric(table: Table, analysis: Analysis, folder: Path) -> None:
    """Write `metric.{svg,png}`: a row per variant in tree order; seeds, their mean, and what was published."""
    index = primary_column(table, analysis)
    column = table.columns[index]
    reference = [row for row in table.rows if row.is_reference]
    rows = [row for row in table.rows if not row.is_reference]
    figure = Figure(figsize=(6.2, 0.23 * len(rows) + 1.35), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        _draw_row(axes, place, row, index)
    for row in reference:
        if (mean := row.cells[index].mean) is not None:
            axes.axvline(mean, color=MUTED, linestyle=(0, (4, 2)), linewidth=1, zorder=1)
    axes.set_yticks(range(len(rows)), [plain(shortened(row.name, NAME_WIDTH)) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(plain(column.metric))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.margins(x=0.04)
    for place, row in enumerate(rows):
        _note_absence(axes, place, row, index)
    _metric_legend(figure, rows, reference, index)
    figure.suptitle(plain(f"{table.title} ({table.scale} scale)"), fontsize=10, weight="bold", x=0.01, ha="left")
    save_figure(figure, folder / "metric")


def _draw_row(axes: Axes, place: int, row: Row, index: int) -> None:
    cell, published = row.cells[index], row.published[index]
    axes.axhline(place, color=FAINT, linewidth=0.5, zorder=0)
    if cell.mean is not None:
        axes.plot(
            cell.values,
            [place] * len(cell.values),
            "o",
            color=PALETTE[0],
            alpha=0.45,
            markersize=3.5,
            zorder=3,
            markeredgewidth=0,
        )
        axes.plot(cell.mean, place, "|", color=INK, markersize=10, markeredgewidth=1.8, zorder=4)
    if published is not None:
        axes.plot(published, place, "D", markerfacecolor="none", color=PALETTE[1], markersize=4.5, zorder=3)


def _note_absence(axes: Axes, place: int, row: Row, index: int) -> None:
    """Say why a row has no dots, on the side where its published marker is not."""
    cell, published = row.cells[index], row.published[index]
    if cell.mean is not None:
        return
    low, high = axes.get_xlim()
    right = published is not None and published < (low + high) / 2
    note = plain(shortened(row.status or ("failed" if cell.failed else "not measured"), 60))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right" if right else "left", "va": "center"}
    x = 0.9 if right else 0.02
    axes.annotate(note, (x, place), fontsize=7, color=MUTED, style="italic", bbox=box, zorder=2, **where)


def _metric_legend(figure: Figure, rows: Sequence[Row], reference: Sequence[Row], index: int) -> None:
    handles = [
        Line2D([], [], marker="o", color=PALETTE[0], alpha=0.45, linestyle="", markersize=4, label="one seed"),
        Line2D([], [], marker="|", color=INK, linestyle="", markersize=9, markeredgewidth=1.8, label="mean of seeds"),
    ]
    if any(row.published[index] is not None for row in rows):
        hollow: dict[str, Any] = {"marker": "D", "markerfacecolor": "none", "linestyle": "", "markersize": 4.5}
        handles.append(Line2D([], [], color=PALETTE[1], label="published", **hollow))
    handles += [
        Line2D([], [], color=MUTED, linestyle=(0, (4, 2)), linewidth=1, label=plain(row.name))
        for row in reference
        if row.cells[index].mean is not None
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=7.5)
