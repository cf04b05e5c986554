"""Figures that a study declares in `_study.yaml`: panels of metrics, with a line, a bar or boxes per variant."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from tracker.show.figures.declared_subsets import draw_distributions, draw_subsets
from tracker.show.figures.style import FAINT, INK, MUTED, PALETTE, finish, look, plain, save_figure, shortened, wrapped
from tracker.show.lineage import lineage
from tracker.store.database import Store

NAME_WIDTH = 26
_LINES_NOTE = "Line: mean over seeds. Band: lowest to highest seed."
_EACH_NOTE = "Colour: the variant, mean over seeds and lowest to highest. Black: its parent. Grey: the others."
_BARS_NOTE = "Bar: mean over steps and seeds. Dots: single seeds."


def draw_figures(store: Store, study: str, folder: Path) -> list[str]:
    """Write `<name>.{svg,png}` of every declared figure; return the names. A panel without data says so."""
    figures = [figure.model_dump() for figure in store.study(study).figures]
    variants = [node.name for node in lineage(store.variants(study))]
    for figure in figures:
        chosen = [name for name in variants if name in figure["variants"]] if figure.get("variants") else variants
        title = f"{figure['title']} ({store.meta()['scale']} scale)"
        drawn, note = _DRAW[figure["kind"]](store, study, figure, chosen)
        _save(drawn, title, note, folder / figure["name"])
    return [figure["name"] for figure in figures]


def _draw_lines(store: Store, study: str, definition: Mapping[str, Any], variants: Sequence[str]) -> tuple[Figure, str]:
    panels, x = definition["panels"], definition["x"]
    columns = min(definition["columns"], len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.6 * columns + 1.9, 1.9 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    frame = _curves(store, study, [panel["metric"] for panel in panels], x)
    for panel, axes in zip(panels, grid.flat, strict=False):
        lines = frame[frame["metric"] == panel["metric"]]
        for index, variant in enumerate(variants):
            _draw_line(axes, lines[lines["variant"] == variant], look(index))
        axes.set_title(plain(wrapped(panel["label"], 32)), fontsize=8.5, weight="bold", loc="left")
        axes.set_xlabel("step" if x is None else plain(x["label"]), fontsize=7)
        _finish_lines(axes, panel, empty=lines.empty)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    handles = []
    for index, variant in enumerate(variants):
        colour, dash = look(index)
        label = plain(shortened(variant, NAME_WIDTH))
        handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=1.4, label=label))
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=7, handlelength=2.6)
    return figure, _LINES_NOTE


def _draw_each(store: Store, study: str, definition: Mapping[str, Any], variants: Sequence[str]) -> tuple[Figure, str]:
    (panel,), x = definition["panels"], definition["x"]
    columns = min(definition["columns"], len(variants))
    rows = -(-len(variants) // columns)
    figure = Figure(figsize=(2.3 * columns + 0.3, 1.5 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    lines = _curves(store, study, [panel["metric"]], x)
    parents = {node.name: node.parent for node in lineage(store.variants(study))}
    for variant, axes in zip(variants, grid.flat, strict=False):
        for other in variants:
            line = lines[lines["variant"] == other]
            axes.plot(line["step"], line["mean"], color=FAINT, linewidth=0.6, zorder=1)
        for name, style in ((parents[variant], (INK, "-")), (variant, (PALETTE[0], "-"))):
            _draw_line(axes, lines[lines["variant"] == name], style)
        title = variant if parents[variant] is None else f"{variant}, from {parents[variant]}"
        axes.set_title(plain(shortened(title, 38)), fontsize=7.5, weight="bold", loc="left")
        _finish_lines(axes, panel, empty=lines[lines["variant"] == variant].empty)
    for axes in grid.flat[len(variants) :]:
        axes.set_axis_off()
    for column in range(columns):  # below the last panel of each column
        last = (len(variants) - 1 - column) // columns
        grid[last, column].set_xlabel("step" if x is None else plain(x["label"]), fontsize=7)
        grid[last, column].tick_params(labelbottom=True)
    figure.supylabel(plain(panel["label"]), fontsize=8)
    return figure, _EACH_NOTE


def _curves(store: Store, study: str, metrics: Sequence[str], x: Mapping[str, str] | None) -> pd.DataFrame:
    """variant, metric, step, mean, low, high; `step` is the horizontal metric where there is one.

    Steps that the horizontal metric does not have are left out.
    """
    frame = store.curves(study, metrics)
    if x is None:
        return frame
    position = store.curves(study, [x["metric"]]).set_index(["variant", "step"])["mean"]
    places = pd.MultiIndex.from_frame(frame[["variant", "step"]])
    return frame.assign(step=position.reindex(places).to_numpy()).dropna(subset=["step"])


def _finish_lines(axes: Axes, panel: Mapping[str, Any], *, empty: bool) -> None:
    if not panel.get("log"):
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4))
        axes.yaxis.get_offset_text().set_fontsize(7)
    elif not empty:
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_formatter("{x:g}")  # the default is mathematical text, which names may not be
        axes.yaxis.set_minor_formatter(NullFormatter())
    finish(axes, empty=empty)


def _draw_line(axes: Axes, line: pd.DataFrame, style: tuple[str, Any]) -> None:
    colour, dash = style
    axes.fill_between(line["step"], line["low"], line["high"], color=colour, alpha=0.09, linewidth=0)
    axes.plot(line["step"], line["mean"], color=colour, linestyle=dash, linewidth=1.1)


def _draw_bars(store: Store, study: str, definition: Mapping[str, Any], variants: Sequence[str]) -> tuple[Figure, str]:
    panels = definition["panels"]
    query = """SELECT variant, seed, metric, avg(value) AS value FROM curves
               WHERE study = ? AND list_contains(?, metric) AND isfinite(value) GROUP BY ALL ORDER BY ALL"""
    frame = store.sql(query, [study, [panel["metric"] for panel in panels]])
    figure = Figure(figsize=(2.9 * len(panels) + 1.6, 0.22 * len(variants) + 1.2), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for panel, axes in zip(panels, grid, strict=True):
        seeds = frame[frame["metric"] == panel["metric"]]
        means = seeds.groupby("variant")["value"].mean()
        for place, variant in enumerate(variants):
            if variant not in means:
                axes.annotate("no data", (0, place), fontsize=7, color=MUTED, style="italic", va="center")
                continue
            axes.barh(place, means[variant], height=0.6, color=INK if place == 0 else PALETTE[0], alpha=0.55)
            values = seeds.loc[seeds["variant"] == variant, "value"]
            axes.plot(values, [place] * len(values), "o", color=INK, markersize=2.5)
        axes.set_title(plain(wrapped(panel["label"], 36)), fontsize=8.5, weight="bold", loc="left")
        finish(axes, empty=seeds.empty)
        axes.grid(axis="x", color=FAINT, linewidth=0.5)
    grid[0].set_yticks(range(len(variants)), [plain(shortened(name, NAME_WIDTH)) for name in variants])
    grid[0].set_ylim(len(variants) - 0.4, -0.6)
    return figure, _BARS_NOTE


def _save(figure: Figure, title: str, note: str, stem: Path) -> None:
    figure.suptitle(plain(title), fontsize=10, weight="bold", x=0.01, ha="left")
    figure.supxlabel(note, fontsize=7, color=MUTED, x=0.01, ha="left")
    save_figure(figure, stem)


_DRAW: Mapping[str, Callable[[Store, str, Mapping[str, Any], Sequence[str]], tuple[Figure, str]]] = {
    "lines": _draw_lines,
    "each": _draw_each,
    "bars": _draw_bars,
    "subsets": draw_subsets,
    "distributions": draw_distributions,
}
