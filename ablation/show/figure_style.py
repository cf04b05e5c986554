"""The style of figures: colours, dashes and grids of panels, and helpers that all kinds of figures share."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from ablation.show.text import plain, shortened, wrapped

# Okabe and Ito, Color Universal Design (2008): distinct for the colour-blind, too; yellow is too pale and left out.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# A line style of matplotlib: "-", or the offset and the lengths of strokes and gaps, in widths of the line.
Dash = Literal["-"] | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)))
INK, MUTED, FAINT, WARN = "#222222", "#888888", "#DDDDDD", "#B34700"
SMALL = 7.0  # size of letters in points
NAME_WIDTH = 26  # characters of a variant's name
LETTER = 0.062  # width of a letter in inches
HUGE = 1e300  # a difference of two larger numbers may overflow
RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": SMALL,
    "text.color": INK,
    "text.parse_math": False,  # names are drawn literally
    "axes.edgecolor": MUTED,
    "axes.labelsize": SMALL,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 5),
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.solid_capstyle": "butt",
    "legend.frameon": False,
    "legend.borderaxespad": 0.0,
    "legend.handlelength": 3.0,
    "pdf.fonttype": 42,  # TrueType, embedded: publishers refuse Type 3
    "svg.fonttype": "path",  # the same picture on a machine without the font
    "svg.hashsalt": "ablation",  # the same bytes for the same figure
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
}


def line_style(index: int) -> tuple[str, Dash]:
    """Return the colour and dash of the line at an index: black for 0, then all combinations in turn."""
    if index == 0:
        return INK, DASHES[0]
    place = (index - 1) % (len(PALETTE) * len(DASHES))
    return PALETTE[place % len(PALETTE)], DASHES[(place + place // len(PALETTE)) % len(DASHES)]


def grid(
    title: str,
    note: str,
    shape: tuple[int, int],
    size: tuple[float, float],
    gaps: tuple[float, float] = (0.0, 0.0),
    *,
    below: float = 0.5,
) -> tuple[Figure, Any]:
    """Return a figure of panels, [rows, columns], with a title at the top and a note at the bottom.

    Lengths are in inches: `size` of a panel, `gaps` to the right of and below a panel, `below` from the panels to the
    note. The canvas has the size of the panels; saving extends it to the title, note, names and legends outside.
    """
    (rows, columns), (gap, rise) = shape, gaps
    wide, high = columns * (size[0] + gap) - gap, rows * (size[1] + rise) - rise
    figure = Figure(figsize=(wide, high))
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(0, 0, 1, 1, wspace=gap / size[0], hspace=rise / size[1])
    figure.text(0, 1 + 0.45 / high, plain(title), size=10, weight="bold", va="bottom")
    if note:
        figure.text(0, -below / high, wrapped(note, max(int(wide / LETTER), 60)), color=MUTED, va="top")
    return figure, axes


def panels(
    title: str,
    note: str,
    count: int,
    columns: int,
    *,
    size: tuple[float, float],
    gaps: tuple[float, float],
    below: float = 0.5,
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `count` panels, at most `columns` in a row."""
    columns = min(columns, count)
    figure, axes = grid(title, note, (-(-count // columns), columns), size, gaps, below=below)
    for unused in axes.flat[count:]:
        unused.set_axis_off()
    return figure, list(axes.flat[:count])


def numbered(axes: Axes, x: bool = True, y: bool = True, *, whole: bool = False) -> None:
    """Set few ticks on both axes.

    `x` and `y`: whether the axis shows numbers; `whole`: whether x has only whole numbers.
    """
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=whole) if x else NullLocator())
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(4))
    else:
        axes.yaxis.set_major_formatter("{x:g}")  # the default of a logarithmic axis would be mathtext
    axes.tick_params(labelleft=y)
    axes.yaxis.get_offset_text().set_x(-0.2)  # next to the title, not over it


def headed(axes: Axes, title: str, inches: float) -> None:
    """Set a panel's title, wrapped to the panel's width."""
    axes.set_title(wrapped(plain(title), round(15 * inches)))


def names_down(axes: Axes, names: Sequence[str]) -> None:
    """Label the y axis with one name per row, from top to bottom."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.yaxis.set_major_locator(FixedLocator(range(len(names))))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels([named(name) for name in names])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def named(variant: str) -> str:
    """Return the name of a variant as figures show it: shortened and without control characters."""
    return plain(shortened(variant, NAME_WIDTH))


def key(variant: str, style: tuple[str, Dash], known: bool = True) -> Line2D:
    """Return the legend entry of a variant; `known` states whether the variant has data."""
    color, dash = style if known else (FAINT, DASHES[0])
    label = named(variant) if known else f"{named(variant)} (no data)"
    return Line2D([], [], color=color, linestyle=dash, linewidth=1.4, label=label)


def beside(axes: Axes, keys: Sequence[Line2D]) -> None:
    """Put a legend to the right of a panel, aligned with its top."""
    axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.6)


def nothing(axes: Axes, words: str = "no data") -> None:
    """Write `words` in the middle of an empty panel."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=MUTED, style="italic")


def finite(values: Any) -> np.ndarray:
    """Return the values clipped to the range that an axis can show."""
    return np.clip(np.asarray(values, dtype=float), -HUGE, HUGE)
