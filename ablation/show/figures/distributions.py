"""Declared figures of kind `distributions`: a box per variant and subset of item values, of any stage."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablation.config.display_schema import FigureDefinition
from ablation.show.figures.style import (
    LEGEND,
    MUTED,
    PALETTE,
    beside,
    finite,
    grid,
    headed,
    names_down,
    nothing,
    room_for,
)
from ablation.show.text import plain
from ablation.store.database import Store

ROW, WIDTH = 0.2, 4.2  # height of a box with its gap, width of a panel, in inches
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_NOTE = "Line: middle 90% of the values of all seeds. Box: middle half. Mark: median. Number: share of the values."
_QUERY = """SELECT variant, subset, quantile_cont(value, ?) AS quantiles,
                count(*) / sum(count(*)) OVER (PARTITION BY variant) AS share
            FROM run_stages JOIN items USING (key)
            WHERE study = ? AND protocol = ? AND name = ? AND isfinite(value)
            GROUP BY variant, subset ORDER BY variant, subset"""


def draw_distributions(
    store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str
) -> Figure:
    """Draw a panel per metric `<protocol>/*/<name>` of the items, which need not belong to the last stage."""
    chosen = [list(panel.variants or variants) for panel in figure.panels]
    found = [_quantiles(store, study, panel.metric) for panel in figure.panels]
    subsets = list(dict.fromkeys(name for frame in found for name in sorted(frame["subset"])))
    height = ROW * max(map(len, chosen)) * max(1, len(subsets))
    left = 0.2 + room_for([name for names in chosen for name in names])
    right = LEGEND + room_for(subsets)
    drawn, axes = grid(title, _NOTE, (1, len(figure.panels)), (WIDTH, height), gaps=(left, 0.0), left=left, right=right)
    for panel, declared, frame, names in zip(axes.flat, figure.panels, found, chosen, strict=True):
        names_down(panel, names)
        _draw_boxes(panel, frame, names, subsets)
        headed(panel, declared.label, WIDTH)
        if frame.empty:
            nothing(panel)
    keys = [
        Line2D([], [], color=PALETTE[place % len(PALETTE)], linewidth=5, label=plain(name.replace("_", " ")))
        for place, name in enumerate(subsets)
    ]
    beside(drawn, axes[0, -1], keys)
    return drawn


def _draw_boxes(panel: Axes, frame: pd.DataFrame, variants: Sequence[str], subsets: Sequence[str]) -> None:
    """One row per variant, with a box per subset from top to bottom."""
    height = 0.8 / max(1, len(subsets))
    found = {(row["variant"], row["subset"]): row for row in frame.to_dict("records")}
    for place, variant in enumerate(variants):
        if found and not any((variant, subset) in found for subset in subsets):
            across = panel.get_yaxis_transform()
            panel.text(0, place, "no data", transform=across, va="center", color=MUTED, style="italic")
        for number, subset in enumerate(subsets):
            if (variant, subset) not in found:
                continue
            row, color = found[variant, subset], PALETTE[number % len(PALETTE)]
            y = place - 0.4 + height * (number + 0.5)
            p05, p25, p50, p75, p95 = finite(row["quantiles"]).tolist()
            panel.plot([p05, p95], [y, y], color=color, linewidth=1)
            panel.barh(y, p75 - p25, 0.55 * height, left=p25, color=color, alpha=0.5)
            panel.plot([p50], [y], "|", color=color, markersize=6, markeredgewidth=1.6)
            panel.annotate(
                f"{row['share']:.0%}", (p95, y), (4, 0), textcoords="offset points", va="center", size=6, color=color
            )


def _quantiles(store: Store, study: str, metric: str) -> pd.DataFrame:
    """variant, subset, quantiles (of QUANTILES), share of the variant's values, over all seeds and finite items."""
    protocol, _, name = metric.split("/")
    return store.sql(_QUERY, [list(QUANTILES), study, protocol, name])
