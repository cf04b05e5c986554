"""The figure `curves`: what a study's runs logged, a panel per family of variants and metric."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ablation.config.display_schema import CurveDefinition
from ablation.config.lineage import walk
from ablation.show.figures.style import (
    LEGEND,
    PALETTE,
    Dash,
    beside,
    finite,
    grid,
    headed,
    key,
    look,
    nothing,
    numbered,
    room_for,
)
from ablation.show.lineage import Node

Array = NDArray[np.float64]
MOST = 1 + len(PALETTE)  # lines of one panel: a parent and six that are compared with it
SIZE = (1.9, 1.25)  # inches
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

    @property
    def full(self) -> NDArray[np.bool_]:
        """Which steps every seed has reached."""
        return np.asarray(self.seeds == self.seeds.max())


def courses(frame: pd.DataFrame) -> dict[tuple[str, str], Course]:
    """Return {(variant, metric): course} of a frame of `Store.curves`, which is sorted by both."""
    keys = list(zip(frame["variant"], frame["metric"], strict=True))
    columns = [finite(frame[name]) for name in ("step", "mean", "low", "high", "seeds")]
    found, start = {}, 0
    for name, rows in groupby(keys):
        stop = start + len(list(rows))
        found[name] = Course(*(column[start:stop] for column in columns))
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


def draw_curves(title: str, declared: Sequence[CurveDefinition], nodes: Sequence[Node], frame: pd.DataFrame) -> Figure:
    """Draw the declared curves that were logged: a row per family, a column per curve."""
    logged = set(frame["metric"])
    curves = [curve for curve in declared if curve.metric in logged]
    if not curves:
        figure, axes = grid(title, "", (1, 1), (3.0, 0.3))
        nothing(axes[0, 0], "no run has logged any of its curves yet")
        axes[0, 0].set_axis_off()
        return figure
    groups, found = families(nodes), courses(frame)
    right = LEGEND + room_for([f"{name} (no data)" for group in groups for name in group])
    figure, axes = grid(title, _NOTE, (len(groups), len(curves)), SIZE, gaps=(0.5, 0.12), right=right)
    for column, curve in enumerate(curves):
        rows = frame[frame["metric"] == curve.metric]
        for row, group in enumerate(groups):
            panel = axes[row, column]
            _draw_family(panel, [found.get((name, curve.metric)) for name in group])
            panel.set_ylim(*_limits(rows))
            panel.set_xlim(*_room(rows["step"]))
            numbered(panel, x=row == len(groups) - 1, whole=True)
        headed(axes[0, column], curve.label, SIZE[0])
        axes[-1, column].set_xlabel("step")
    drawn = {variant for variant, _ in found}
    for group, panel in zip(groups, axes[:, -1], strict=True):
        beside(figure, panel, [key(name, look(index), name in drawn) for index, name in enumerate(group)])
    return figure


def _room(values: pd.Series, share: float = 0.04) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = share * (high - low) or 0.05 * abs(high) or 0.05
    return low - pad, high + pad


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    """The bulk: where one spike is ten times as high as the rest, it is cut off rather than the rest flattened."""
    values = pd.Series(finite(np.concatenate([rows["low"], rows["high"]])))
    low, high = float(values.quantile(0.005)), float(values.quantile(0.995))
    bulk, whole = high - low, values.max() - values.min()
    return (low - 0.1 * bulk, high + 0.1 * bulk) if 0 < bulk < whole / 3 else _room(values, 0.05)


def _draw_family(panel: Axes, members: Sequence[Course | None]) -> None:
    for index, course in enumerate(members):
        if course is not None:
            draw_course(panel, course, look(index), 1.1 if index else 1.6)


def draw_course(panel: Axes, course: Course, style: tuple[str, Dash], width: float = 1.1) -> None:
    """Draw a mean and, over the steps that every seed has reached, the band of its seeds; beyond them a thin line."""
    color, dash = style
    if course.seeds.max() > 1:
        panel.fill_between(course.step, course.low, course.high, where=course.full, color=color, alpha=0.1, linewidth=0)
    if not course.full.all():
        panel.plot(course.step, course.mean, color=color, linewidth=0.5, alpha=0.6)
    mean = np.where(course.full, course.mean, np.nan)
    panel.plot(
        course.step,
        mean,
        color=color,
        linewidth=width,
        linestyle=(0, dash) if dash else "-",
        marker="." if len(course.step) == 1 else "",
    )
