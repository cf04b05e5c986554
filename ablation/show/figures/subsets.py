"""Declared figures of kind `subsets`: a line per variant along the subsets of a final metric."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablation.config.display_schema import FigureDefinition
from ablation.show.figures.panel import Frame, Legend, Panel, draw_grid
from ablation.show.figures.ranges import Range, spanning
from ablation.show.figures.sheet import Sheet
from ablation.show.figures.style import FAINT, NAME_WIDTH, SMALL, look
from ablation.show.text import plain, shortened
from ablation.store.database import Store

_NOTE = "Line: mean over seeds. Band: lowest to highest seed."


def draw_subsets(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Sheet:
    """Draw a panel per metric `<protocol>/*/<name>`, each with its own scale and legend; its first variant is black.

    Subsets that are numbers are placed at them, others in the order of the analysis; the subset `mean` is left out.
    """
    declared = figure.panels
    columns = min(figure.columns, len(declared))
    results = store.results(study)
    order = store.study(study).analysis.subsets
    frames, lines, legends = {}, {}, {}
    for index, panel in enumerate(declared):
        rows, place = _along_subsets(results, panel.metric), divmod(index, columns)
        chosen = [] if rows.empty else list(panel.variants or variants)
        shown = rows[rows["variant"].isin(chosen)]
        places = _places(list(dict.fromkeys(rows["subset"])), order)
        y = spanning(np.concatenate([shown["low"], shown["high"]]), 5)
        x_label = figure.axis or "subset"
        frames[place] = Frame(_along(places), y, title=panel.label, x_label=x_label)
        lines[place] = [(look(i), rows[rows["variant"] == variant], places) for i, variant in enumerate(chosen)]
        legends[place] = _legend(chosen, set(rows["variant"]))
    room = max(legend.height for legend in legends.values()) + 6
    sheet, panels = draw_grid(title, _NOTE, frames, (148.0, 160.0), below=room)
    for place, drawn in panels.items():
        for style, rows, places in lines[place]:
            _draw_line(drawn, rows, places, style)
        left, _, _, bottom = drawn.box
        legends[place].draw(sheet, left, bottom + 3.4 * SMALL)
        if not lines[place]:
            drawn.note("no data")
    return sheet


def _along(places: Mapping[str, float]) -> Range:
    ends = spanning(list(places.values()), labels=False)
    return Range(ends.low, ends.high, tuple((place, plain(name)) for name, place in places.items()))


def _legend(variants: Sequence[str], known: set[str]) -> Legend:
    names = [plain(shortened(name, NAME_WIDTH)) for name in variants]
    entries = [
        (name, *look(index)) if variant in known else (f"{name} (no data)", FAINT, ())
        for index, (name, variant) in enumerate(zip(names, variants, strict=True))
    ]
    return Legend(entries)


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


def _draw_line(panel: Panel, rows: pd.DataFrame, places: Mapping[str, float], style: tuple[str, Any]) -> None:
    if rows.empty:
        return
    color, dash = style
    rows = rows.assign(x=rows["subset"].map(places)).sort_values("x")
    panel.band(rows["x"], rows["low"], rows["high"], color, 0.12)
    panel.line(rows["x"], rows["mean"], color, 1.2, dash)
    panel.dots(rows["x"], rows["mean"], color, 1.4)
