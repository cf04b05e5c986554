"""A picture as a list of marks, in points from its upper left corner.

A sheet knows nothing of data. One `Axes` of matplotlib per panel would hold the same marks, but costs 25 ms a drawing,
and the demo's figures have 300 panels.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ablation.show.figures.letters import text_width
from ablation.show.figures.style import INK, Dash

Array = NDArray[np.float64]
Box = tuple[float, float, float, float]  # left, top, right, bottom
Shape = Literal["dot", "bar", "diamond", "square"]


@dataclass(frozen=True)
class Line:
    """A line through points [n, 2]; where one is NaN it is broken."""

    points: Array
    color: str = INK
    width: float = 1.0
    dash: Dash = ()
    alpha: float = 1.0
    clip: Box | None = None
    crisp: bool = False  # on whole pixels: for lines along the edges


@dataclass(frozen=True)
class Area:
    """A filled polygon with corners [n, 2]."""

    points: Array
    color: str
    alpha: float = 1.0
    clip: Box | None = None


@dataclass(frozen=True)
class Dots:
    """One shape of a radius at each of the points [n, 2]. `fill` None: hollow; `width` 0: without an edge."""

    points: Array
    color: str
    radius: float
    shape: Shape = "dot"
    fill: str | None = None
    width: float = 0.0
    alpha: float = 1.0


@dataclass(frozen=True)
class Text:
    """One line of text from (x, y) on its baseline, to the right or, `upright`, upwards."""

    x: float
    y: float
    text: str
    size: float
    color: str = INK
    bold: bool = False
    italic: bool = False
    upright: bool = False


Mark = Line | Area | Dots | Text


@dataclass
class Sheet:
    """A picture of a size in points. Marks cover those before them. `title` is for readers that cannot see it."""

    width: float
    height: float
    title: str = ""
    marks: list[Mark] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        anchor: Literal["start", "middle", "end"] = "start",
        **looks: Any,
    ) -> None:
        """Write one line of text with its start, middle or end at x, its baseline at y (`upright`: along y)."""
        shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        if shift:
            length = shift * text_width(text, size, bold=looks.get("bold", False))
            x, y = (x, y + length) if looks.get("upright") else (x - length, y)
        self.marks.append(Text(round(float(x), 2), round(float(y), 2), text, size, **looks))


def xy(x: Any, y: Any) -> Array:
    """Return points [n, 2], rounded to what no eye can tell apart, which keeps the files small."""
    return np.round(np.column_stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)]), 2)


def rectangle(left: float, top: float, right: float, bottom: float) -> Array:
    """Return the corners of a rectangle."""
    return xy([left, right, right, left, left], [top, top, bottom, bottom, top])
