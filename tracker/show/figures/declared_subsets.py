"""Declared figures over the subsets of a metric `<protocol>/*/<name>`: lines, or quantiles of the items."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tracker.show.figures.style import FAINT, MUTED, PALETTE, finish, look, plain, shortened, wrapped
from tracker.store.database import Store

NAME_WIDTH = 26
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SUBSETS_NOTE = "Line: mean over seeds. Band: lowest to highest seed."
_BOXES_NOTE = (
    "Line: middle 90% of the values of all seeds. Box: middle half. Mark: median. Number: share of the values."
)


def draw_subsets(
    store: Store, study: str, definition: Mapping[str, Any], variants: Sequence[str]
) -> tuple[Figure, str]:
    """Return a figure with a line per variant along the subsets of a final metric, and its note.

    Every panel has its own scale and legend; the first of its variants is black. Subsets that are numbers are placed
    at them, others in the order of the analysis; the subset `mean` is left out.
    """
    panels = definition["panels"]
    columns = min(definition["columns"], len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.5 * columns + 0.6, 4.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    results = store.results(study)
    order = store.study(study).analysis.subsets
    for panel, axes in zip(panels, grid.flat, strict=False):
        lines = _along_subsets(results, panel["metric"])
        places = _places(list(dict.fromkeys(lines["subset"])), order)
        for index, variant in enumerate([] if lines.empty else panel["variants"] or variants):
            _draw_line(axes, lines[lines["variant"] == variant], places, look(index), variant)
        axes.set_title(plain(wrapped(panel["label"], 36)), fontsize=8.5, weight="bold", loc="left")
        axes.set_xlabel(plain(definition["axis"] or "subset"), fontsize=7)
        finish(axes, empty=lines.empty)
        axes.set_xticks(list(places.values()), [plain(name) for name in places])
        if axes.lines:
            below: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "borderaxespad": 0}
            axes.legend(frameon=False, fontsize=7, handlelength=2.8, labelspacing=0.35, **below)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    return figure, _SUBSETS_NOTE


def _along_subsets(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """variant, subset, mean, low, high over seeds of the finite values of `<protocol>/*/<name>`."""
    parts = results["metric"].str.split("/", expand=True).reindex(columns=range(3))
    protocol, _, name = metric.split("/")
    chosen = (parts[0] == protocol) & (parts[2] == name) & (parts[1] != "mean") & results["value"].notna()
    frame = results[chosen].assign(subset=parts[1][chosen])
    grouped = frame.groupby(["variant", "subset"])["value"]
    return pd.DataFrame({"mean": grouped.mean(), "low": grouped.min(), "high": grouped.max()}).reset_index()


def _places(subsets: Sequence[str], order: Sequence[str]) -> dict[str, float]:
    """Horizontal place of every subset, from left to right."""
    try:
        return {name: float(name) for name in sorted(subsets, key=float)}
    except ValueError:
        known = [name for name in order if name in subsets]
        return {name: float(n) for n, name in enumerate([*known, *sorted(set(subsets) - set(known))])}


def _draw_line(
    axes: Axes, line: pd.DataFrame, places: Mapping[str, float], style: tuple[str, Any], variant: str
) -> None:
    colour, dash = style
    if line.empty:
        axes.plot([], [], color=FAINT, label=f"{plain(shortened(variant, NAME_WIDTH))} (no data)")
        return
    line = line.assign(x=line["subset"].map(places)).sort_values("x")
    label = plain(shortened(variant, NAME_WIDTH))
    axes.fill_between(line["x"], line["low"], line["high"], color=colour, alpha=0.12, linewidth=0)
    axes.plot(line["x"], line["mean"], color=colour, linestyle=dash, linewidth=1.2, marker="o", ms=2.5, label=label)


def draw_distributions(
    store: Store, study: str, definition: Mapping[str, Any], variants: Sequence[str]
) -> tuple[Figure, str]:
    """Return a figure with a box per variant and subset of the item values `<protocol>/*/<name>`, and its note.

    The items may belong to any stage of the run, not only to the last.
    """
    panels = definition["panels"]
    names = [list(panel["variants"] or variants) for panel in panels]
    frames = [_quantiles(store, study, panel["metric"]) for panel in panels]
    subsets = list(dict.fromkeys(name for frame in frames for name in sorted(frame["subset"])))
    most = max(len(chosen) for chosen in names) * max(1, len(subsets))
    figure = Figure(figsize=(4.6 * len(panels) + 1.8, 0.2 * most + 1.3), layout="constrained")
    for panel, chosen, frame, axes in zip(
        panels, names, frames, figure.subplots(1, len(panels), squeeze=False)[0], strict=True
    ):
        _draw_boxes(axes, frame, chosen, subsets)
        axes.set_title(plain(wrapped(panel["label"], 48)), fontsize=8.5, weight="bold", loc="left")
        finish(axes, empty=frame.empty)
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=FAINT, linewidth=0.5)
        axes.set_yticks(range(len(chosen)), [plain(shortened(name, NAME_WIDTH)) for name in chosen])
        axes.set_ylim(len(chosen) - 0.5, -0.5)
    handles = [
        Line2D([], [], color=_colour(place), linewidth=5, alpha=0.6, label=plain(name.replace("_", " ")))
        for place, name in enumerate(subsets)
    ]
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=7, handlelength=1.2)
    return figure, _BOXES_NOTE


def _colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _draw_boxes(axes: Axes, frame: pd.DataFrame, variants: Sequence[str], subsets: Sequence[str]) -> None:
    """One row per variant, with a box per subset from top to bottom."""
    height = 0.8 / max(1, len(subsets))
    found = {(row["variant"], row["subset"]): row for row in frame.to_dict("records")}
    for place, variant in enumerate(variants):
        if not any((variant, subset) in found for subset in subsets):
            axes.annotate("no data", (0, place), fontsize=7, color=MUTED, style="italic", va="center")
        for number, subset in enumerate(subsets):
            if (variant, subset) not in found:
                continue
            row, y = found[variant, subset], place - 0.4 + height * (number + 0.5)
            p05, p25, p50, p75, p95 = row["quantiles"]
            colour = _colour(number)
            axes.plot([p05, p95], [y, y], color=colour, linewidth=1.0)
            axes.barh(y, p75 - p25, left=p25, height=0.7 * height, color=colour, alpha=0.5, linewidth=0)
            axes.plot([p50], [y], marker="|", color=colour, markersize=7, markeredgewidth=1.6)
            shown: dict[str, Any] = {
                "fontsize": 6,
                "color": colour,
                "va": "center",
                "xytext": (4, 0),
                "textcoords": "offset points",
            }
            axes.annotate(f"{row['share']:.0%}", (p95, y), **shown)


def _quantiles(store: Store, study: str, metric: str) -> pd.DataFrame:
    """variant, subset, quantiles (of QUANTILES), share of the variant's values, over all seeds and finite items."""
    protocol, _, name = metric.split("/")
    query = """SELECT variant, subset, quantile_cont(value, ?) AS quantiles,
                   count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share
               FROM run_stages JOIN items USING (key)
               WHERE study = ? AND protocol = ? AND name = ? AND isfinite(value)
               GROUP BY variant, subset ORDER BY variant, subset"""
    return store.sql(query, [list(QUANTILES), study, protocol, name])
