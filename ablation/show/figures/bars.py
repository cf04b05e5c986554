"""Declared figures of kind `bars`: a bar per variant, the mean of a metric over its steps and seeds."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from ablation.config.display_schema import FigureDefinition
from ablation.show.figures.style import INK, MUTED, PALETTE, finite, grid, headed, names_down, room_for
from ablation.store.database import Store

ROW, WIDTH = 0.21, 2.5  # inches
_NOTE = "Bar: mean over steps and seeds. Dots: single seeds."
_QUERY = """SELECT variant, seed, metric, avg(value) AS value FROM curves
            WHERE study = ? AND list_contains(?, metric) AND isfinite(value) GROUP BY ALL ORDER BY ALL"""


def draw_bars(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric, side by side."""
    rows = store.sql(_QUERY, [study, [panel.metric for panel in figure.panels]])
    seeds = {found: finite(group["value"]) for found, group in rows.groupby(["metric", "variant"])}
    left = 0.2 + room_for(variants)
    drawn, axes = grid(title, _NOTE, (1, len(figure.panels)), (WIDTH, ROW * len(variants)), gaps=(0.2, 0.0), left=left)
    for panel, declared in zip(axes.flat, figure.panels, strict=True):
        names_down(panel, variants)
        panel.axvline(0.0, color=MUTED, linewidth=0.8)
        for place, variant in enumerate(variants):
            values = seeds.get((declared.metric, variant))
            if values is None:
                panel.text(0.0, place, " no data", va="center", color=MUTED, style="italic")
                continue
            panel.barh(place, values.mean(), 0.6, color=INK if not place else PALETTE[0], alpha=0.55)
            panel.plot(values, [place] * len(values), ".", color=INK, markersize=3)
        headed(panel, declared.label, WIDTH)
        panel.tick_params(labelleft=panel is axes[0, 0])
    return drawn
