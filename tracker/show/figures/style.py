"""Figures that look alike and whose bytes depend on their content alone."""

import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contract.atomic import replacing

# Okabe and Ito, Color Universal Design (2008): distinct also with colour-blind eyes; yellow is left out as too pale.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)))
INK, MUTED, FAINT, WARN = "#222222", "#888888", "#DDDDDD", "#B34700"

STYLE: Any = {
    "svg.hashsalt": "tracker",
    "svg.fonttype": "path",  # the same picture on a machine without the font
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8,
    "text.parse_math": False,  # names and reasons come from users: a $ is a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "xtick.color": INK,
    "ytick.color": INK,
    "path.simplify": True,
    "path.simplify_threshold": 0.3,
}


def save_figure(figure: Figure, stem: Path) -> None:
    """Write `<stem>.svg` and `<stem>.png`, without dates or versions, so that equal figures are equal files."""
    with mpl.rc_context(STYLE):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        with replacing(stem.with_suffix(".svg")) as file:
            figure.savefig(file, metadata=nothing)
        with replacing(stem.with_suffix(".png")) as file:
            figure.savefig(file, dpi=160, metadata={"Software": None})


def plain(text: str) -> str:
    """Text that matplotlib draws as it stands: control characters become spaces."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def wrapped(text: str, width: int) -> str:
    """Break at spaces into lines of at most `width` characters; a longer word is cut."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def shortened(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def look(index: int) -> tuple[str, Any]:
    """Return colour and dash of the index-th variant: the root black, then every pair of both before any repeats."""
    if index == 0:
        return INK, "-"
    place = (index - 1) % (len(PALETTE) * len(DASHES))
    return PALETTE[place % len(PALETTE)], DASHES[(place + place // len(PALETTE)) % len(DASHES)]


def finish(axes: Axes, *, empty: bool) -> None:
    """Give a panel its grid and ticks; an empty one says so."""
    if empty:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=MUTED, style="italic")
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=7, length=2)
