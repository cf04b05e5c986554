"""The figure `metric`: a row per variant in tree order; its seeds, their mean, and what was published."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ablation.config.study_schema import Analysis
from ablation.show.figures.letters import text_width
from ablation.show.figures.panel import EDGE, Frame, Panel, draw_grid
from ablation.show.figures.ranges import Range, spanning
from ablation.show.figures.sheet import Area, Dots, Line, Sheet, rectangle, xy
from ablation.show.figures.style import FAINT, INK, MUTED, NAME_WIDTH, PALETTE, SMALL
from ablation.show.tables import ComparisonTable, Row
from ablation.show.text import plain, shortened

ROW, WIDTH = 16.5, 330.0
_DASHED = (4.0, 2.0)


def primary_column(table: ComparisonTable, analysis: Analysis) -> int:
    """The table's main column: the mean over subsets under the analysis' protocol, else the first."""
    for index, column in enumerate(table.columns):
        parts = column.metric.split("/")
        if len(parts) == 3 and parts[1] == "mean" and parts[0] == analysis.protocol:
            return index
    return 0


def names_down(names: Sequence[str]) -> Range:
    """An axis with a name per row, from the top to the bottom."""
    ticks = tuple((float(place), plain(shortened(name, NAME_WIDTH))) for place, name in enumerate(names))
    return Range(len(names) - 0.4, -0.6, ticks)


def draw_metric(table: ComparisonTable, analysis: Analysis) -> Sheet:
    """Draw the primary metric of every variant."""
    index = primary_column(table, analysis)
    reference = [row for row in table.rows if row.is_reference]
    rows = [row for row in table.rows if not row.is_reference]
    means = [row.cells[index].mean for row in reference if row.cells[index].mean is not None]
    shown: list[Any] = [*means, *(value for row in rows for value in _values(row, index))]
    x = spanning(shown, 7, margin=0.04)
    frame = Frame(x, names_down([row.name for row in rows]), x_label=table.columns[index].metric, across=True)
    title = f"{table.title} ({table.scale} scale)"
    sheet, panels = draw_grid(title, "", {(0, 0): frame}, (WIDTH, ROW * max(len(rows), 1)), below=2.2 * SMALL)
    panel = panels[0, 0]
    for mean in means:
        panel.line([mean, mean], [len(rows) - 0.4, -0.6], MUTED, 1.0, _DASHED)
    for place, row in enumerate(rows):
        _draw_row(panel, place, row, index)
    _draw_legend(panel, rows, [row for row in reference if row.cells[index].mean is not None], index)
    return sheet


def _values(row: Row, index: int) -> list[float]:
    cell, published = row.cells[index], row.published[index]
    return [*(cell.values if cell.mean is not None else ()), *([] if published is None else [published])]


def _draw_row(panel: Panel, place: int, row: Row, index: int) -> None:
    cell, published = row.cells[index], row.published[index]
    left, _, right, _ = panel.box
    y = panel.place([0], [place])[0][1]
    panel.sheet.marks.append(Line(xy([left, right], [y, y]), FAINT, 0.5, crisp=True))
    if cell.mean is None:
        _note_absence(panel, place, row, index)
    else:
        panel.dots(cell.values, [place] * len(cell.values), PALETTE[0], 1.75, alpha=0.45)
        panel.dots([cell.mean], [place], INK, 5, shape="bar", width=1.8)
    if published is not None:
        panel.dots([published], [place], PALETTE[1], 2.25, shape="diamond", fill=None, width=1.0)


def _note_absence(panel: Panel, place: int, row: Row, index: int) -> None:
    """Say why a row has no dots, on the side where its published marker is not."""
    cell, published = row.cells[index], row.published[index]
    left, _, right, _ = panel.box
    y = panel.place([0], [place])[0][1]
    opposite = published is not None and published < (panel.x.low + panel.x.high) / 2
    note = plain(shortened(row.status or ("failed" if cell.failed else "not measured"), 60))
    length = text_width(note, SMALL)
    start = max(left + 4, right - 30 - length) if opposite else left + 6
    panel.sheet.marks.append(Area(rectangle(start - 2, y - 5, start + length + 2, y + 5), "white"))
    panel.sheet.text(start, y + 0.35 * SMALL, note, SMALL, color=MUTED, italic=True)


def _draw_legend(panel: Panel, rows: Sequence[Row], reference: Sequence[Row], index: int) -> None:
    """One line below the figure."""
    sheet, x, y = panel.sheet, EDGE, panel.sheet.height - EDGE - 0.4 * SMALL
    entries: list[tuple[str, Dots | Line]] = [
        ("one seed", Dots(np.zeros((1, 2)), PALETTE[0], 2.0, fill=PALETTE[0], alpha=0.45)),
        ("mean of seeds", Dots(np.zeros((1, 2)), INK, 4.5, "bar", width=1.8)),
    ]
    if any(row.published[index] is not None for row in rows):
        entries.append(("published", Dots(np.zeros((1, 2)), PALETTE[1], 2.25, "diamond", width=1.0)))
    for row in reference:
        entries.append((plain(row.name), Line(np.array([[-6.0, 0.0], [6.0, 0.0]]), MUTED, 1.0, _DASHED)))
    for name, mark in entries:
        moved = np.round(mark.points + np.array([x + 10, y - 0.36 * SMALL]), 2)
        sheet.marks.append(replace(mark, points=moved))
        sheet.text(x + 20, y, name, SMALL)
        x += 36 + text_width(name, SMALL)
