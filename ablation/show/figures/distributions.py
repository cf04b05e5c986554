"""Declared figures of kind `distributions`: a box per variant and subset of item values, of any stage."""

from collections.abc import Sequence

import pandas as pd

from ablation.config.display_schema import FigureDefinition
from ablation.show.figures.metric import names_down
from ablation.show.figures.panel import Frame, Legend, Panel, draw_grid
from ablation.show.figures.ranges import Range, spanning
from ablation.show.figures.sheet import Sheet
from ablation.show.figures.style import PALETTE
from ablation.show.text import plain
from ablation.store.database import Store

ROW, WIDTH, NUMBERS = 15.0, 300.0, 6.0  # height of a box and its gap, width of a panel, size of the shares' letters
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_NOTE = "Line: middle 90% of the values of all seeds. Box: middle half. Mark: median. Number: share of the values."
_QUERY = """SELECT variant, subset, quantile_cont(value, ?) AS quantiles,
                count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share
            FROM run_stages JOIN items USING (key)
            WHERE study = ? AND protocol = ? AND name = ? AND isfinite(value)
            GROUP BY variant, subset ORDER BY variant, subset"""


def draw_distributions(
    store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str
) -> Sheet:
    """Draw a panel per metric `<protocol>/*/<name>` of the items, which need not belong to the last stage."""
    declared = figure.panels
    chosen = [list(panel.variants or variants) for panel in declared]
    found = [_quantiles(store, study, panel.metric) for panel in declared]
    subsets = list(dict.fromkeys(name for frame in found for name in sorted(frame["subset"])))
    rows = max(len(names) for names in chosen)
    frames = {}
    for column, panel in enumerate(declared):
        y = Range(len(chosen[column]) - 0.5, -0.5, names_down(chosen[column]).ticks)
        bounds = [q for row in found[column]["quantiles"] for q in (row[0], row[-1])]
        frames[0, column] = Frame(_with_room(spanning(bounds, 6)), y, title=panel.label, across=True)
    legend = Legend([(plain(name.replace("_", " ")), _color(place), ()) for place, name in enumerate(subsets)])
    size = (WIDTH, ROW * rows * max(1, len(subsets)))
    sheet, panels = draw_grid(title, _NOTE, frames, size, right=14 + legend.width)
    for column, names in enumerate(chosen):
        _draw_boxes(panels[0, column], found[column], names, subsets)
        if found[column].empty:
            panels[0, column].note("no data")
    _, top, right, bottom = panels[0, len(declared) - 1].box
    legend.draw(sheet, right + 14, (top + bottom - legend.height) / 2, width=5.0)
    return sheet


def _with_room(x: Range) -> Range:
    """The same axis, with room at its right end for the number beside the box."""
    return Range(x.low, x.high + 0.07 * (x.high - x.low), x.ticks)


def _color(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _draw_boxes(panel: Panel, frame: pd.DataFrame, variants: Sequence[str], subsets: Sequence[str]) -> None:
    """One row per variant, with a box per subset from top to bottom."""
    height = 0.8 / max(1, len(subsets))
    found = {(row["variant"], row["subset"]): row for row in frame.to_dict("records")}
    for place, variant in enumerate(variants):
        if found and not any((variant, subset) in found for subset in subsets):
            panel.note("no data", panel.x.low, place)
        for number, subset in enumerate(subsets):
            if (variant, subset) not in found:
                continue
            row, y = found[variant, subset], place - 0.4 + height * (number + 0.5)
            p05, p25, p50, p75, p95 = row["quantiles"]
            panel.line([p05, p95], [y, y], _color(number), 1.0)
            panel.bar(p25, p75, y, 0.55 * ROW, _color(number), alpha=0.5)
            panel.dots([p50], [y], _color(number), 3.5, shape="bar", width=1.6)
            [[x, middle]] = panel.place([p95], [y])
            panel.sheet.text(x + 4, middle + 0.36 * NUMBERS, f"{row['share']:.0%}", NUMBERS, color=_color(number))


def _quantiles(store: Store, study: str, metric: str) -> pd.DataFrame:
    """variant, subset, quantiles (of QUANTILES), share of the variant's values, over all seeds and finite items."""
    protocol, _, name = metric.split("/")
    return store.sql(_QUERY, [list(QUANTILES), study, protocol, name])
