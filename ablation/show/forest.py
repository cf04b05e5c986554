"""The forest plot of a study: every comparison's effect with its interval, as a paper prints it."""

import math
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from ablation.contract.errors import TrackerError
from ablation.contract.numbers import confidence, stated
from ablation.judge.verdicts import JudgedStudy
from ablation.show.answer import interval_of, interval_words
from ablation.show.figure_style import FAINT, INK, MUTED, PALETTE, finite
from ablation.show.text import plain, shortened, wrapped

Against = Literal["parent", "root"]
Order = Literal["tree", "effect"]
COLUMN_WIDTH = 3.35  # inches: a column of a two-column paper
_NAME = 34  # characters of a row's name
_ROW, _HIGHEST = 0.17, 8.5  # inches: of a row, and of all rows; many rows are lower
# Marker, colour, and whether it is filled.
_MARKS: dict[str, tuple[str, str, bool]] = {
    "better": ("^", PALETTE[0], True),
    "worse": ("v", PALETTE[1], True),
    "equivalent": ("s", MUTED, True),
    "undecided": ("o", INK, False),
    "confounded": ("D", INK, False),
    "invalid": ("x", MUTED, False),
    "": ("o", INK, True),
}


@dataclass(frozen=True)
class ForestRow:
    """A row of the forest plot: name, effect, interval and verdict of a comparison; unmeasured numbers are NaN."""

    name: str
    effect: float
    low: float
    high: float
    verdict: str


def forest_rows(study: JudgedStudy, against: Against = "parent", order: Order = "tree") -> list[ForestRow]:
    """Return the rows of a study's forest plot, from the top down.

    against: `parent` gives the comparisons of the study; `root` gives the effects of all changes since the root, but no
        verdicts.
    order: `tree` as in the variant tree; `effect` with the largest effect first and rows without an effect last.
    """
    labels = {variant.name: variant.label for variant in study.measurements.variants}
    parents = {comparison.parent for comparison in study.comparisons}
    rows = []
    for comparison in study.comparisons:
        name = labels[comparison.child] or comparison.child
        if against == "root":
            if comparison.root:
                ends = comparison.root_effect, comparison.root_low, comparison.root_high
                rows.append(ForestRow(name, *ends, ""))
        else:
            suffix = f" vs. {comparison.parent}" if len(parents) > 1 else ""
            name = shortened(name, max(_NAME - len(suffix), 1)) + suffix  # the end names the baseline
            rows.append(ForestRow(name, comparison.effect, *interval_of(comparison), comparison.verdict))
    if order == "effect":
        rows.sort(key=lambda row: math.inf if math.isnan(row.effect) else -row.effect)
    return rows


def draw_forest(study: JudgedStudy, label: str, against: Against = "parent", order: Order = "tree") -> Axes:
    """Draw the forest plot of a study on a new figure, as wide as a column of a paper; return the axes.

    label: name of the metric. Raises TrackerError if nothing is compared.
    """
    rows = forest_rows(study, against, order)
    if not rows:
        raise TrackerError(f"{study.name}: no variant is compared with its {against}, so the study has no forest plot")
    height = min(_ROW, _HIGHEST / len(rows))
    styled = mpl.rcParams["figure.figsize"]
    width = COLUMN_WIDTH if styled == mpl.rcParamsDefault["figure.figsize"] else styled[0]
    figure = Figure(figsize=(width, height * len(rows) + 0.95), layout="constrained")
    axes, analysis = figure.subplots(), study.measurements.analysis
    if analysis.margin is not None:
        axes.axvspan(-analysis.margin, analysis.margin, color=FAINT, alpha=0.6, linewidth=0, zorder=0)
    axes.axvline(0.0, color=MUTED, linewidth=0.8, zorder=1)
    for place, row in enumerate(rows):
        _draw_row(axes, place, row, 72 * height)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.yaxis.set_major_locator(FixedLocator(range(len(rows))))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels(
        [plain(shortened(row.name, _NAME)) for row in rows], size=min(mpl.rcParams["font.size"], 0.62 * 72 * height)
    )
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(visible=False)
    over = "for all paths of the variant tree at once" if against == "root" else interval_words(study.comparisons)
    since = "the root" if against == "root" else _parent(study)
    level = f"{confidence(analysis.alpha)} interval"
    caption = f"{plain(label)}: difference from {since}, above 0 if better, with the {level} {over}".rstrip()
    size = mpl.rcParams["font.size"]
    figure.supxlabel(wrapped(caption, int(72 * width / (0.58 * size))), size=size)
    keys: list[Artist] = [_key(verdict) for verdict in _MARKS if verdict and verdict in {row.verdict for row in rows}]
    if analysis.margin is not None:
        keys.append(Patch(color=FAINT, alpha=0.6, linewidth=0, label=f"margin ±{stated(analysis.margin)}"))
    figure.legend(
        handles=keys, loc="outside upper center", ncols=2 if len(keys) == 4 else 3, handlelength=1.2, columnspacing=1
    )
    return axes


def _parent(study: JudgedStudy) -> str:
    parents = {comparison.parent for comparison in study.comparisons}
    return plain(parents.pop()) if len(parents) == 1 else 'the variant after "vs."'


def _draw_row(axes: Axes, place: int, row: ForestRow, points: float) -> None:
    if math.isnan(row.effect):
        across = axes.get_yaxis_transform()
        axes.text(0.02, place, row.verdict, transform=across, va="center", color=MUTED, style="italic", size="small")
        return
    marker, color, filled = _MARKS.get(row.verdict, _MARKS[""])
    if not math.isnan(row.low):
        axes.plot(finite([row.low, row.high]), [place, place], color=color, linewidth=1.1, zorder=2)
    face = color if filled else "white"
    size = min(4.5, 0.5 * points)
    axes.plot(finite([row.effect]), [place], marker, color=color, markerfacecolor=face, markersize=size, zorder=3)


def _key(verdict: str) -> Line2D:
    marker, color, filled = _MARKS[verdict]
    face = color if filled else "white"
    return Line2D(
        [], [], linewidth=1.1, color=color, marker=marker, markerfacecolor=face, markersize=4.5, label=verdict
    )
