"""A panel: one rectangle of a figure with its axes, and the grid that places panels so that nothing overlaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ablation.show.figures.letters import broken, text_width
from ablation.show.figures.ranges import Range
from ablation.show.figures.sheet import Area, Array, Box, Dots, Line, Sheet, rectangle, xy
from ablation.show.figures.style import FAINT, HEADING, INK, MUTED, SMALL, TITLE, Dash
from ablation.show.text import plain

GAP, EDGE, LINE_HEIGHT = 12.0, 8.0, 1.3  # between panels and around the figure in points; of lines in sizes of letters
TICK = 2.5


@dataclass
class Panel:
    """A rectangle on a sheet into which data are drawn. `clipped`: some data lie outside."""

    sheet: Sheet
    box: Box
    x: Range
    y: Range
    clipped: bool = False

    def place(self, x: Any, y: Any) -> Array:
        """Return the points of data on the sheet."""
        left, top, right, bottom = self.box
        return xy(left + self.x.share(x) * (right - left), bottom - self.y.share(y) * (bottom - top))

    def line(self, x: Any, y: Any, color: str, width: float = 1.1, dash: Dash = (), *, alpha: float = 1.0) -> None:
        """Draw a line through data."""
        clip = self.box if self.clipped else None
        self.sheet.marks.append(Line(self.place(x, y), color, width, dash, alpha, clip))

    def band(self, x: Any, low: Any, high: Any, color: str, alpha: float) -> None:
        """Fill between two lines."""
        lower, upper = self.place(x, low), self.place(x, high)
        lower, upper = lower[np.isfinite(lower).all(axis=1)], upper[np.isfinite(upper).all(axis=1)]
        if len(lower) > 1:
            clip = self.box if self.clipped else None
            self.sheet.marks.append(Area(np.concatenate([lower, upper[::-1]]), color, alpha, clip))

    def dots(self, x: Any, y: Any, color: str, radius: float, **looks: Any) -> None:
        """Mark single points; filled discs unless `shape` and `fill` say otherwise."""
        self.sheet.marks.append(Dots(self.place(x, y), color, radius, **({"fill": color} | looks)))

    def bar(self, start: float, end: float, y: float, height: float, color: str, *, alpha: float) -> None:
        """Fill a horizontal bar `height` points high around y."""
        [[left, middle], [right, _]] = self.place([start, end], [y, y])
        corners = rectangle(left, middle - height / 2, right, middle + height / 2)
        self.sheet.marks.append(Area(corners, color, alpha))

    def note(self, text: str, x: float | None = None, y: float | None = None) -> None:
        """Say that there is nothing: at data (x, y), or in the middle."""
        left, top, right, bottom = self.box
        at = ((left + right) / 2, (top + bottom) / 2) if x is None else tuple(self.place([x], [y])[0])
        anchor: Any = "middle" if x is None else "start"
        self.sheet.text(at[0], at[1] + 0.35 * SMALL, text, SMALL, anchor, color=MUTED, italic=True)

    def frame(self, *, across: bool = False) -> None:
        """Draw the left and lower edges, and a faint line at each tick of y (`across`: of x)."""
        left, top, right, bottom = self.box
        for share in self.x.share([t for t, _ in self.x.ticks]) if across else ():
            x = left + share * (right - left)
            self.sheet.marks.append(Line(xy([x, x], [top, bottom]), FAINT, 0.5, crisp=True))
        for share in () if across else self.y.share([t for t, _ in self.y.ticks]):
            y = bottom - share * (bottom - top)
            self.sheet.marks.append(Line(xy([left, right], [y, y]), FAINT, 0.5, crisp=True))
        self.sheet.marks.append(Line(xy([left, left, right], [top, bottom, bottom]), MUTED, 0.8, crisp=True))

    def x_ticks(self) -> None:
        """Write the numbers below."""
        left, _, right, bottom = self.box
        for (_, label), share in zip(self.x.ticks, self.x.share([t for t, _ in self.x.ticks]), strict=True):
            x = left + float(share) * (right - left)
            self.sheet.marks.append(Line(xy([x, x], [bottom, bottom + TICK]), INK, 0.6, crisp=True))
            self.sheet.text(x, bottom + TICK + 1.15 * SMALL, label, SMALL, "middle")

    def y_ticks(self) -> None:
        """Write the numbers, or names, to the left."""
        left, top, _, bottom = self.box
        for (_, label), share in zip(self.y.ticks, self.y.share([t for t, _ in self.y.ticks]), strict=True):
            y = bottom - float(share) * (bottom - top)
            self.sheet.marks.append(Line(xy([left - TICK, left], [y, y]), INK, 0.6, crisp=True))
            self.sheet.text(left - TICK - 2, y + 0.36 * SMALL, label, SMALL, "end")


@dataclass(frozen=True)
class Frame:
    """What stands around one panel: its axes, a title, and whether its numbers are written."""

    x: Range
    y: Range
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_numbers: bool = True
    y_numbers: bool = True
    clipped: bool = False
    across: bool = False  # faint lines at the ticks of x


@dataclass(frozen=True)
class Legend:
    """Lines of a legend: (name, colour, dash)."""

    entries: Sequence[tuple[str, str, Dash]]

    @property
    def width(self) -> float:
        """Width in points."""
        return max((LEGEND_LINE + 5 + text_width(name, SMALL) for name, _, _ in self.entries), default=0.0)

    @property
    def height(self) -> float:
        """Height in points."""
        return LEGEND_STEP * len(self.entries)

    def draw(self, sheet: Sheet, left: float, top: float, width: float = 1.4) -> None:
        """Draw it from its upper left corner."""
        for number, (name, color, dash) in enumerate(self.entries):
            y = top + LEGEND_STEP * (number + 0.5)
            sheet.marks.append(Line(xy([left, left + LEGEND_LINE], [y, y]), color, width, dash))
            sheet.text(left + LEGEND_LINE + 5, y + 0.36 * SMALL, name, SMALL)


LEGEND_LINE, LEGEND_STEP = 20.0, 1.45 * SMALL


def draw_grid(
    title: str,
    note: str,
    frames: Mapping[tuple[int, int], Frame],
    size: tuple[float, float],
    *,
    y_label: str = "",
    right: float = 0.0,
    above: float = 0.0,
    below: float = 0.0,
) -> tuple[Sheet, dict[tuple[int, int], Panel]]:
    """Return a sheet with the title, the note at its foot and empty panels of one size, at {(row, column): frame}.

    Room is left for what stands around the panels: `right` of all of them, `above` the first row and `below` the rows
    (in every row), in points. `y_label` is that of all panels.
    """
    width, height = size
    rows, columns = (1 + max(place[i] for place in frames) for i in (0, 1))
    titles = {place: broken(plain(f.title), HEADING, width, bold=True) for place, f in frames.items()}
    labels = {place: broken(plain(f.y_label), SMALL, height, bold=True) for place, f in frames.items()}
    gutters = [max(_gutter(f, labels[p]) for p, f in frames.items() if p[1] == c) for c in range(columns)]
    heads = [max(HEADING * LINE_HEIGHT * len(titles[p]) for p in frames if p[0] == r) for r in range(rows)]
    feet = [max(_foot(f) for p, f in frames.items() if p[0] == r) + below for r in range(rows)]
    side = 1.8 * HEADING if y_label else 0.0
    lefts = list(accumulate(gutters[1:], lambda x, gutter: x + width + GAP + gutter, initial=EDGE + side + gutters[0]))
    top = EDGE + 1.9 * TITLE + above
    tops = list(
        accumulate(range(1, rows), lambda y, r: y + height + feet[r - 1] + heads[r] + 6, initial=top + heads[0])
    )
    whole = max(lefts[-1] + width + right, EDGE + text_width(plain(title), TITLE, bold=True)) + EDGE
    notes = broken(note, SMALL, whole - 2 * EDGE)
    bottom = tops[-1] + height + feet[-1]
    sheet = Sheet(round(whole, 2), round(bottom + LINE_HEIGHT * SMALL * len(notes) + EDGE, 2), plain(title))
    sheet.text(EDGE, EDGE + TITLE, plain(title), TITLE, bold=True)
    for number, line in enumerate(notes):
        sheet.text(EDGE, bottom + LINE_HEIGHT * SMALL * (number + 1), line, SMALL, color=MUTED)
    if y_label:
        middle = (tops[0] + tops[-1] + height) / 2
        sheet.text(EDGE + HEADING, middle, plain(y_label), HEADING, "middle", upright=True)
    panels = {}
    for place, frame in frames.items():
        left, top = lefts[place[1]], tops[place[0]]
        panel = Panel(sheet, (left, top, left + width, top + height), frame.x, frame.y, frame.clipped)
        _draw_frame(panel, frame, titles[place], labels[place], gutters[place[1]])
        panels[place] = panel
    return sheet, panels


def _gutter(frame: Frame, label: Sequence[str]) -> float:
    numbers = max((text_width(text, SMALL) for _, text in frame.y.ticks), default=0.0) + 6 if frame.y_numbers else 0.0
    return numbers + LINE_HEIGHT * SMALL * len(label) + (3 if label else 0)


def _foot(frame: Frame) -> float:
    return (1.7 * SMALL if frame.x_numbers else 2.0) + (1.4 * SMALL if frame.x_label else 0.0)


def _draw_frame(panel: Panel, frame: Frame, title: Sequence[str], label: Sequence[str], gutter: float) -> None:
    left, top, right, bottom = panel.box
    panel.frame(across=frame.across)
    for number, line in enumerate(reversed(title)):
        panel.sheet.text(left, top - 3.5 - LINE_HEIGHT * HEADING * number, line, HEADING, bold=True)
    for number, line in enumerate(label):
        x = left - gutter + SMALL * (LINE_HEIGHT * number + 1)
        panel.sheet.text(x, (top + bottom) / 2, line, SMALL, "middle", bold=True, upright=True)
    if frame.x_numbers:
        panel.x_ticks()
    if frame.y_numbers:
        panel.y_ticks()
    if frame.x_label:
        below = bottom + (1.7 * SMALL if frame.x_numbers else 2.0) + SMALL
        panel.sheet.text((left + right) / 2, below, plain(frame.x_label), SMALL, "middle")
