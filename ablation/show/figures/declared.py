"""Figures that a study declares in `_study.yaml`: panels of metrics, with a line, a bar or boxes per variant."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from ablation.config.display_schema import FigureAxis, FigureDefinition, FigurePanel
from ablation.show.figures.bars import draw_bars
from ablation.show.figures.curves import Course, courses, draw_band
from ablation.show.figures.distributions import draw_distributions
from ablation.show.figures.panel import Frame, Legend, Panel, draw_grid
from ablation.show.figures.ranges import Range, spanning
from ablation.show.figures.sheet import Sheet
from ablation.show.figures.style import FAINT, INK, NAME_WIDTH, PALETTE, look
from ablation.show.figures.subsets import draw_subsets
from ablation.show.lineage import lineage
from ablation.show.text import plain, shortened
from ablation.store.database import Store

_LINES_NOTE = "Line: mean over seeds. Band: lowest to highest seed."
_EACH_NOTE = "Colour: the variant, mean over seeds and lowest to highest. Black: its parent. Grey: the others."


def declared_figures(store: Store, study: str) -> dict[str, Sheet]:
    """Return every declared figure by its name. A panel without data says so."""
    definition = store.study(study)
    variants = [node.name for node in lineage(store.variants(study))]
    sheets = {}
    for figure in definition.figures:
        chosen = [name for name in variants if name in figure.variants] if figure.variants else variants
        title = f"{figure.title} ({store.meta()['scale']} scale)"
        sheets[figure.name] = _DRAW[figure.kind](store, study, figure, chosen, title)
    return sheets


def _draw_lines(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Sheet:
    declared, axis = figure.panels, figure.x
    columns = min(figure.columns, len(declared))
    frame = _curves(store, study, [panel.metric for panel in declared], axis)
    found, shown = courses(frame), frame[frame["variant"].isin(variants)]
    frames = {
        divmod(index, columns): Frame(
            _x_range(shown[shown["metric"] == panel.metric], axis),
            _y_range(shown[shown["metric"] == panel.metric], panel),
            title=panel.label,
            x_label="step" if axis is None else axis.label,
        )
        for index, panel in enumerate(declared)
    }
    legend = Legend([(plain(shortened(name, NAME_WIDTH)), *look(index)) for index, name in enumerate(variants)])
    sheet, panels = draw_grid(title, _LINES_NOTE, frames, (150.0, 104.0), right=14 + legend.width)
    for index, panel in enumerate(declared):
        drawn = panels[divmod(index, columns)]
        known = [(i, found[v, panel.metric]) for i, v in enumerate(variants) if (v, panel.metric) in found]
        for number, course in known:
            _draw_course(drawn, course, look(number))
        if not known:
            drawn.note("no data")
    boxes = [panel.box for panel in panels.values()]
    top, bottom = min(box[1] for box in boxes), max(box[3] for box in boxes)
    legend.draw(sheet, max(box[2] for box in boxes) + 14, max(top, (top + bottom - legend.height) / 2))
    sheet.height = max(sheet.height, round(top + legend.height + 20, 2))
    return sheet


def _draw_each(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Sheet:
    (panel,), axis = figure.panels, figure.x
    columns = min(figure.columns, len(variants))
    frame = _curves(store, study, [panel.metric], axis)
    found = {variant: course for (variant, _), course in courses(frame).items()}
    parents = {node.name: node.parent for node in lineage(store.variants(study))}
    x, y, frames = _x_range(frame, axis), _y_range(frame, panel), {}
    for index, variant in enumerate(variants):
        parent = parents[variant]
        lowest = index + columns >= len(variants)  # below the last panel of each column
        frames[divmod(index, columns)] = Frame(
            x,
            y,
            title=variant if parent is None else f"{variant}, from\u00a0{parent}",
            x_label=("step" if axis is None else axis.label) if lowest else "",
            x_numbers=lowest,
            y_numbers=index % columns == 0,
        )
    sheet, panels = draw_grid(title, _EACH_NOTE, frames, (140.0, 84.0), y_label=panel.label)
    for index, variant in enumerate(variants):
        drawn, parent = panels[divmod(index, columns)], parents[variant]
        for other in variants:
            if other in found and other not in (variant, parent):
                drawn.line(found[other].step, found[other].mean, FAINT, 0.6)
        for name, color in ((parent, INK), (variant, PALETTE[0])):
            if name in found:
                _draw_course(drawn, found[name], (color, ()))
        if variant not in found:
            drawn.note("no data")
    return sheet


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


def _x_range(rows: pd.DataFrame, x: FigureAxis | None) -> Range:
    return spanning(rows["step"], 4, margin=0.04, whole=x is None)


def _y_range(rows: pd.DataFrame, panel: FigurePanel) -> Range:
    return spanning(np.concatenate([rows["low"], rows["high"]]), 5, log=bool(panel.log))


def _draw_course(panel: Panel, course: Course, style: tuple[str, tuple[float, ...]]) -> None:
    color, dash = style
    draw_band(panel, course, color, alpha=0.09)
    panel.line(course.step, course.mean, color, 1.1, dash)
    if len(course.step) == 1:
        panel.dots(course.step, course.mean, color, 1.5)


_DRAW: Mapping[str, Callable[[Store, str, FigureDefinition, Sequence[str], str], Sheet]] = {
    "lines": _draw_lines,
    "each": _draw_each,
    "bars": draw_bars,
    "subsets": draw_subsets,
    "distributions": draw_distributions,
}
