"""Declared figures of kinds `lines` and `each`: metrics along the steps, or along another metric."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from ablation.config.display_schema import FigureAxis, FigureDefinition
from ablation.show.figures.curves import courses, draw_course
from ablation.show.figures.style import (
    FAINT,
    INK,
    LEGEND,
    PALETTE,
    beside,
    grid,
    headed,
    key,
    look,
    nothing,
    numbered,
    room_for,
)
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
