"""Declared figures of kind `bars`: a bar per variant, the mean of a metric over its steps and seeds."""

from collections.abc import Sequence

from ablation.config.display_schema import FigureDefinition
from ablation.show.figures.metric import names_down
from ablation.show.figures.panel import Frame, draw_grid
from ablation.show.figures.ranges import spanning
from ablation.show.figures.sheet import Sheet
from ablation.show.figures.style import INK, PALETTE
from ablation.store.database import Store

ROW, WIDTH = 15.5, 180.0
_NOTE = "Bar: mean over steps and seeds. Dots: single seeds."
_QUERY = """SELECT variant, seed, metric, avg(value) AS value FROM curves
            WHERE study = ? AND list_contains(?, metric) AND isfinite(value) GROUP BY ALL ORDER BY ALL"""


def draw_bars(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Sheet:
    """Draw a panel per metric, side by side."""
    declared = figure.panels
    rows = store.sql(_QUERY, [study, [panel.metric for panel in declared]])
    seeds: dict[tuple[str, str], list[float]] = {}
    for variant, metric, value in zip(rows["variant"], rows["metric"], rows["value"], strict=True):
        seeds.setdefault((metric, variant), []).append(float(value))
    names, frames = names_down(variants), {}
    for column, panel in enumerate(declared):
        values = [value for v in variants for value in seeds.get((panel.metric, v), [])]
        x = spanning([0.0, *values], 4)
        frames[0, column] = Frame(x, names, title=panel.label, y_numbers=not column, across=True)
    sheet, panels = draw_grid(title, _NOTE, frames, (WIDTH, ROW * len(variants) + 4))
    for column, panel in enumerate(declared):
        for place, variant in enumerate(variants):
            values = seeds.get((panel.metric, variant), [])
            if not values:
                panels[0, column].note("no data", 0.0, place)
                continue
            color = PALETTE[0] if place else INK
            panels[0, column].bar(0.0, sum(values) / len(values), place, 0.6 * ROW, color, alpha=0.55)
            panels[0, column].dots(values, [place] * len(values), INK, 1.25)
    return sheet
