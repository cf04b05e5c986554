"""Figures that a study declares, by kind: `lines`, `each`, `bars`, `subsets` and `distributions`."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from ablation.config.display_schema import FigureAxis, FigureDefinition
from ablation.show.figures.standard import courses, draw_course
from ablation.show.figures.style import (
    FAINT,
    INK,
    LEGEND,
    MUTED,
    PALETTE,
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
from ablation.show.text import plain
from ablation.store.database import Store

_LINES_NOTE = "Line: mean over seeds. Band: lowest to highest seed."
_EACH_NOTE = "Colour: the variant, mean over seeds and lowest to highest. Black: its parent. Grey: the others."
_LINES, _EACH = (2.1, 1.45), (1.9, 1.15)  # sizes of panels in inches


def draw_lines(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric with a line per variant."""
    columns = min(figure.columns, len(figure.panels))
    shape = (-(-len(figure.panels) // columns), columns)
    right, below = LEGEND + room_for(variants), max(0.0, 0.16 * len(variants) - shape[0] * (_LINES[1] + 0.65))
    drawn, axes = grid(title, _LINES_NOTE, shape, _LINES, gaps=(0.55, 0.65), right=right, below=below)
    found = courses(_curves(store, study, [panel.metric for panel in figure.panels], figure.x))
    for panel in axes.flat[len(figure.panels) :]:
        panel.set_axis_off()
    for panel, declared in zip(axes.flat, figure.panels, strict=False):
        known = [(look(i), found[v, declared.metric]) for i, v in enumerate(variants) if (v, declared.metric) in found]
        for style, course in known:
            draw_course(panel, course, style)
        if not known:
            nothing(panel)
        elif declared.log:
            panel.set_yscale("log", nonpositive="mask")
        headed(panel, declared.label, _LINES[0])
        panel.set_xlabel("step" if figure.x is None else figure.x.label)
        numbered(panel, whole=figure.x is None)
    beside(drawn, axes[0, -1], [key(name, look(index)) for index, name in enumerate(variants)])
    return drawn


def draw_each(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw one metric in a panel per variant, with its parent and, faint, all others."""
    [declared], parents = figure.panels, {variant.name: variant.parent for variant in store.variants(study)}
    columns = min(figure.columns, len(variants))
    shape = (-(-len(variants) // columns), columns)
    drawn, axes = grid(f"{title}: {declared.label}", _EACH_NOTE, shape, _EACH, gaps=(0.15, 0.42))
    frame = _curves(store, study, [declared.metric], figure.x)
    found = {variant: course for (variant, _), course in courses(frame).items()}
    for panel in axes.flat[len(variants) :]:
        panel.set_axis_off()
    for panel, variant in zip(axes.flat, variants, strict=False):
        parent = parents[variant]
        for other in variants:
            if other in found and other not in (variant, parent):
                panel.plot(found[other].step, found[other].mean, color=FAINT, linewidth=0.6)
        for name, color in ((parent, INK), (variant, PALETTE[0])):
            if name in found:
                draw_course(panel, found[name], (color, ()))
        if variant not in found:
            nothing(panel)
        if declared.log and found:
            panel.set_yscale("log", nonpositive="mask")
        headed(panel, variant if parent is None else f"{variant}, from {parent}", _EACH[0])
    lowest = min((panel.get_ylim()[0] for panel in axes.flat[: len(variants)]), default=0.0)
    highest = max((panel.get_ylim()[1] for panel in axes.flat[: len(variants)]), default=1.0)
    for place, panel in enumerate(axes.flat[: len(variants)]):
        under = place + columns >= len(variants)  # the last panel of its column
        panel.set_ylim(lowest, highest)
        numbered(panel, x=under, y=place % columns == 0, whole=figure.x is None)
        panel.set_xlabel(("step" if figure.x is None else figure.x.label) if under else "")
    return drawn


def _curves(store: Store, study: str, metrics: Sequence[str], x: FigureAxis | None) -> pd.DataFrame:
    """variant, metric, step, mean, low, high, seeds; `step` is the horizontal metric where there is one.

    Steps that the horizontal metric does not have are left out.
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
    """Draw a panel per metric, side by side."""
    rows = store.sql(_BARS_QUERY, [study, [panel.metric for panel in figure.panels]])
    seeds = {found: finite(group["value"]) for found, group in rows.groupby(["metric", "variant"])}
    left = 0.2 + room_for(variants)
    drawn, axes = grid(
        title, _BARS_NOTE, (1, len(figure.panels)), (_BARS, _BAR * len(variants)), gaps=(0.2, 0.0), left=left
    )
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
_SUBSETS_NOTE = "Line: mean over seeds. Band: lowest to highest seed."


def draw_subsets(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric `<protocol>/*/<name>`, each with its own scale and legend; its first variant is black.

    Subsets that are numbers are placed at them, others in the order of the analysis; the subset `mean` is left out.
    """
    columns = min(figure.columns, len(figure.panels))
    shape = (-(-len(figure.panels) // columns), columns)
    room = 0.16 * max(len(panel.variants or variants) for panel in figure.panels)
    drawn, axes = grid(title, _SUBSETS_NOTE, shape, _SUBSETS, gaps=(0.6, 0.9 + room), below=room)
    results, order = store.results(study), store.study(study).analysis.subsets
    for panel in axes.flat[len(figure.panels) :]:
        panel.set_axis_off()
    for panel, declared in zip(axes.flat, figure.panels, strict=False):
        rows = _along_subsets(results, declared.metric)
        chosen = list(declared.variants or variants)
        places = _places(list(dict.fromkeys(rows["subset"])), order)
        rows["x"] = rows["subset"].map(places)
        for index, variant in enumerate(chosen):
            line = rows[rows["variant"] == variant].sort_values("x")
            if line.empty:
                continue
            (color, dash), (mean, low, high) = look(index), (finite(line[name]) for name in ("mean", "low", "high"))
            panel.fill_between(line["x"], low, high, color=color, alpha=0.12, linewidth=0)
            panel.plot(line["x"], mean, color=color, lw=1.2, ls=(0, dash) if dash else "-", marker=".", markersize=4)
        headed(panel, declared.label, _SUBSETS[0])
        numbered(panel)
        panel.set_xlabel(plain(figure.axis or "subset"))
        if rows.empty:
            nothing(panel)
            continue
        panel.xaxis.set_major_locator(FixedLocator(list(places.values())))
        panel.set_xticklabels([plain(name) for name in places])
        known = set(rows["variant"])
        keys = [key(name, look(index), name in known) for index, name in enumerate(chosen)]
        panel.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, -0.45 / _SUBSETS[1]))
    return drawn


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


_BOX, _BOXES = 0.2, 4.2  # height of a box with its gap, width of a panel, in inches
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BOXES_NOTE = (
    "Line: middle 90% of the values of all seeds. Box: middle half. Mark: median. Number: share of the values."
)
_BOXES_QUERY = """SELECT variant, subset, quantile_cont(value, ?) AS quantiles,
                count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share
            FROM run_stages JOIN items USING (key)
            WHERE study = ? AND protocol = ? AND name = ? AND isfinite(value)
            GROUP BY variant, subset ORDER BY variant, subset"""


def draw_distributions(
    store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str
) -> Figure:
    """Draw a panel per metric `<protocol>/*/<name>` of the items, which need not belong to the last stage."""
    chosen = [list(panel.variants or variants) for panel in figure.panels]
    found = [_quantiles(store, study, panel.metric) for panel in figure.panels]
    subsets = list(dict.fromkeys(name for frame in found for name in sorted(frame["subset"])))
    height = _BOX * max(map(len, chosen)) * max(1, len(subsets))
    left = 0.2 + room_for([name for names in chosen for name in names])
    right = LEGEND + room_for(subsets)
    drawn, axes = grid(
        title, _BOXES_NOTE, (1, len(figure.panels)), (_BOXES, height), gaps=(left, 0.0), left=left, right=right
    )
    for panel, declared, frame, names in zip(axes.flat, figure.panels, found, chosen, strict=True):
        names_down(panel, names)
        _draw_boxes(panel, frame, names, subsets)
        headed(panel, declared.label, _BOXES)
        if frame.empty:
            nothing(panel)
    keys = [
        Line2D([], [], color=PALETTE[place % len(PALETTE)], linewidth=5, label=plain(name.replace("_", " ")))
        for place, name in enumerate(subsets)
    ]
    beside(drawn, axes[0, -1], keys)
    return drawn


def _draw_boxes(panel: Axes, frame: pd.DataFrame, variants: Sequence[str], subsets: Sequence[str]) -> None:
    """One row per variant, with a box per subset from top to bottom."""
    height = 0.8 / max(1, len(subsets))
    found = {(row["variant"], row["subset"]): row for row in frame.to_dict("records")}
    for place, variant in enumerate(variants):
        if found and not any((variant, subset) in found for subset in subsets):
            across = panel.get_yaxis_transform()
            panel.text(0, place, "no data", transform=across, va="center", color=MUTED, style="italic")
        for number, subset in enumerate(subsets):
            if (variant, subset) not in found:
                continue
            row, color = found[variant, subset], PALETTE[number % len(PALETTE)]
            y = place - 0.4 + height * (number + 0.5)
            p05, p25, p50, p75, p95 = finite(row["quantiles"]).tolist()
            panel.plot([p05, p95], [y, y], color=color, linewidth=1)
            panel.barh(y, p75 - p25, 0.55 * height, left=p25, color=color, alpha=0.5)
            panel.plot([p50], [y], "|", color=color, markersize=6, markeredgewidth=1.6)
            panel.annotate(
                f"{row['share']:.0%}", (p95, y), (4, 0), textcoords="offset points", va="center", size=6, color=color
            )


def _quantiles(store: Store, study: str, metric: str) -> pd.DataFrame:
    """variant, subset, quantiles (of QUANTILES), share of the variant's values, over all seeds and finite items."""
    protocol, _, name = metric.split("/")
    return store.sql(_BOXES_QUERY, [list(QUANTILES), study, protocol, name])
