"""Declared figures of kind `subsets`: a line per variant along the subsets of a final metric."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from ablation.config.display_schema import FigureDefinition
from ablation.show.figures.style import finite, grid, headed, key, look, nothing, numbered
from ablation.show.text import plain
from ablation.store.database import Store

SIZE = (2.3, 2.2)  # inches
_NOTE = "Line: mean over seeds. Band: lowest to highest seed."


def draw_subsets(store: Store, study: str, figure: FigureDefinition, variants: Sequence[str], title: str) -> Figure:
    """Draw a panel per metric `<protocol>/*/<name>`, each with its own scale and legend; its first variant is black.

    Subsets that are numbers are placed at them, others in the order of the analysis; the subset `mean` is left out.
    """
    columns = min(figure.columns, len(figure.panels))
    shape = (-(-len(figure.panels) // columns), columns)
    room = 0.16 * max(len(panel.variants or variants) for panel in figure.panels)
    drawn, axes = grid(title, _NOTE, shape, SIZE, gaps=(0.6, 0.9 + room), below=room)
    results, order = store.results(study), store.study(study).analysis.subsets
    for panel in axes.flat[len(figure.panels) :]:
        panel.set_axis_off()
    for panel, declared in zip(axes.flat, figure.panels, strict=False):
        rows = _along_subsets(results, declared.metric)
        chosen = list(declared.variants or variants)
        places = _places(list(dict.fromkeys(rows["subset"])), order)
        rows["x"] = rows["subset"].map(places)
        for index, variant in enumerate(chosen):
            line = rows[rows["variant"] == variant].sort_values("x")
            if line.empty:
                continue
            (color, dash), (mean, low, high) = look(index), (finite(line[name]) for name in ("mean", "low", "high"))
            panel.fill_between(line["x"], low, high, color=color, alpha=0.12, linewidth=0)
            panel.plot(line["x"], mean, color=color, lw=1.2, ls=(0, dash) if dash else "-", marker=".", markersize=4)
        headed(panel, declared.label, SIZE[0])
        numbered(panel)
        panel.set_xlabel(plain(figure.axis or "subset"))
        if rows.empty:
            nothing(panel)
            continue
        panel.xaxis.set_major_locator(FixedLocator(list(places.values())))
        panel.set_xticklabels([plain(name) for name in places])
        known = set(rows["variant"])
        keys = [key(name, look(index), name in known) for index, name in enumerate(chosen)]
        panel.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, -0.45 / SIZE[1]))
    return drawn


def _along_subsets(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """variant, subset, mean, low, high over seeds of the finite values of `<protocol>/*/<name>`."""
    parts = results["metric"].str.split("/", expand=True).reindex(columns=range(3))
    protocol, _, name = metric.split("/")
    chosen = (parts[0] == protocol) & (parts[2] == name) & (parts[1] != "mean") & results["value"].notna()
    frame = results[chosen].assign(subset=parts[1][chosen])
    grouped = frame.groupby(["variant", "subset"])["value"]
    return pd.DataFrame({"mean": grouped.mean(), "low": grouped.min(), "high": grouped.max()}).reset_index()


def _places(subsets: Sequence[str], order: Sequence[str]) -> dict[str, float]:
    """Horizontal place of every subset, from left to right."""
    try:
        return {name: float(name) for name in sorted(subsets, key=float)}
    except ValueError:
        known = [name for name in order if name in subsets]
        return {name: float(n) for n, name in enumerate([*known, *sorted(set(subsets) - set(known))])}
