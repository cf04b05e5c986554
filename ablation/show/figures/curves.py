"""The figure `curves`: what a study's runs logged, a panel per family of variants and metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd

from ablation.config.display_schema import CurveDefinition
from ablation.config.lineage import walk
from ablation.show.figures.letters import text_width
from ablation.show.figures.panel import EDGE, Frame, Legend, Panel, draw_grid
from ablation.show.figures.ranges import Range, between, spanning
from ablation.show.figures.sheet import Array, Sheet
from ablation.show.figures.style import FAINT, LABEL, MUTED, NAME_WIDTH, PALETTE, TITLE, look
from ablation.show.lineage import Node
from ablation.show.text import plain, shortened

MOST = 1 + len(PALETTE)  # lines of one panel: a parent and six that are compared with it
PANEL = (136.0, 92.0)
_NOTE = (
    "Line: mean over seeds. Band: lowest to highest seed. Thin: some seeds have stopped. "
    "Black: what the others of its legend descend from."
)


@dataclass(frozen=True)
class Course:
    """One metric of one variant along the steps: mean, lowest and highest over seeds, and the number of seeds."""

    step: Array
    mean: Array
    low: Array
    high: Array
    seeds: Array


def courses(frame: pd.DataFrame) -> dict[tuple[str, str], Course]:
    """Return {(variant, metric): course} of a frame of `Store.curves`, which is sorted by both."""
    keys = list(zip(frame["variant"], frame["metric"], strict=True))
    columns = [frame[name].to_numpy(dtype=float) for name in ("step", "mean", "low", "high", "seeds")]
    found, start = {}, 0
    for key, rows in groupby(keys):
        stop = start + len(list(rows))
        found[key] = Course(*(column[start:stop] for column in columns))
        start = stop
    return found


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


def draw_curves(title: str, declared: Sequence[CurveDefinition], nodes: Sequence[Node], frame: pd.DataFrame) -> Sheet:
    """Draw the declared curves that were logged: families are the columns where they are fewer than the curves."""
    logged = set(frame["metric"])
    curves = [curve for curve in declared if curve.metric in logged]
    if not curves:
        return _nothing(title)
    groups, found = families(nodes), courses(frame)
    across = len(groups) < len(curves)  # families are columns
    steps = {c.metric: frame.loc[frame["metric"] == c.metric, ["step", "low", "high"]] for c in curves}
    x_of = {metric: spanning(rows["step"], 4, margin=0.04, whole=True) for metric, rows in steps.items()}
    y_of = {metric: _limits(rows) for metric, rows in steps.items()}
    frames = {}
    for row in range(len(curves) if across else len(groups)):
        for column in range(len(groups) if across else len(curves)):
            curve = curves[row if across else column]
            (y, clipped), lowest = y_of[curve.metric], row == (len(curves) if across else len(groups)) - 1
            frames[row, column] = Frame(
                x_of[curve.metric],
                y,
                title="" if across or row else curve.label,
                y_label=curve.label if across and not column else "",
                x_label="step" if lowest else "",
                x_numbers=across or lowest,
                y_numbers=not (across and column),
                clipped=clipped,
            )
    legends = [_legend(group, {variant for variant, _ in found}) for group in groups]
    above = max(legend.height for legend in legends) + 4 if across else 0.0
    right = 0.0 if across else 14 + max(legend.width for legend in legends)
    sheet, panels = draw_grid(title, _NOTE, frames, PANEL, right=right, above=above)
    for number, (group, legend) in enumerate(zip(groups, legends, strict=True)):
        for place, curve in enumerate(curves):
            panel = panels[(place, number) if across else (number, place)]
            _draw_family(panel, group, curve.metric, found)
        left, top, right, bottom = panels[(0, number) if across else (number, len(curves) - 1)].box
        if across:
            legend.draw(sheet, left, top - legend.height - 4)
        else:
            legend.draw(sheet, right + 14, (top + bottom - legend.height) / 2)
    return sheet


def _nothing(title: str) -> Sheet:
    words = "no run has logged any of its curves yet"
    width = max(text_width(plain(title), TITLE, bold=True), text_width(words, LABEL))
    sheet = Sheet(round(width + 2 * EDGE, 2), 46.0, plain(title))
    sheet.text(EDGE, EDGE + TITLE, plain(title), TITLE, bold=True)
    sheet.text(EDGE, EDGE + 2.6 * TITLE, words, LABEL, color=MUTED)
    return sheet


def _limits(rows: pd.DataFrame) -> tuple[Range, bool]:
    """The bulk: where one spike is ten times as high as the rest, it is cut off rather than the rest flattened."""
    low, high = float(rows["low"].quantile(0.005)), float(rows["high"].quantile(0.995))
    bulk, whole = high - low, rows["high"].max() - rows["low"].min()
    if 0 < bulk < whole / 3:
        return between(low - 0.1 * bulk, high + 0.1 * bulk), True
    return spanning(np.concatenate([rows["low"], rows["high"]])), False


def _draw_family(panel: Panel, group: Sequence[str], metric: str, found: Mapping[tuple[str, str], Course]) -> None:
    members = [(index, found[name, metric]) for index, name in enumerate(group) if (name, metric) in found]
    for index, course in members:
        if course.seeds.max() > 1:
            draw_band(panel, course, look(index)[0], alpha=0.11)
    for index, course in members:
        color, dash = look(index)
        full = course.seeds == course.seeds.max()
        if not full.all():
            panel.line(course.step, course.mean, color, 0.5, alpha=0.6)
        panel.line(course.step, np.where(full, course.mean, np.nan), color, 1.1 if index else 1.6, dash)
        if len(course.step) == 1:
            panel.dots(course.step, course.mean, color, 1.5)


def draw_band(panel: Panel, course: Course, color: str, alpha: float) -> None:
    """Fill from the lowest to the highest seed, over the steps that every seed has reached."""
    full = course.seeds == course.seeds.max()
    edges = np.flatnonzero(np.diff(np.concatenate([[0], full.astype(int), [0]])))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        part = slice(start, stop)
        panel.band(course.step[part], course.low[part], course.high[part], color, alpha)


def _legend(group: Sequence[str], drawn: set[str]) -> Legend:
    entries = []
    for index, variant in enumerate(group):
        name = plain(shortened(variant, NAME_WIDTH))
        known = variant in drawn
        entries.append((name if known else f"{name} (no data)", *(look(index) if known else (FAINT, ()))))
    return Legend(entries)
