"""The numbers behind the page's figures, for its buttons: what a reader saves as a picture or as data."""

from typing import Any

from ablation.config.study_schema import Analysis
from ablation.show.lineage import describe_change
from ablation.show.page.edges import Edges
from ablation.show.page.format import is_number
from ablation.show.page.plan_words import primary_in_words
from ablation.show.page.published import DotPlot

EFFECTS = ("effect", "low", "high", "p", "p_adjusted", "seeds", "items")


def figure_data(title: str, edges: Edges, analysis: Analysis | None, plots: list[DotPlot]) -> dict[str, Any]:
    """Return `{title, effects, published}`; a figure that the page does not have is None.

    effects: `{measure, margin, confidence, limit, decimals, columns, rows}`, a row being variant, against, change,
    verdict and the numbers of EFFECTS (null where there is none), in the order of the lineage.
    published: `[{label, rows: [[variant, published, measured, sd]]}]`, one per plot.
    """
    rows = [
        [
            name,
            comparison.parent,
            "; ".join(describe_change(change) for change in comparison.changes),
            comparison.verdict,
            *(value if is_number(value := comparison.evidence.get(column)) else None for column in EFFECTS),
        ]
        for name, comparison in edges.comparisons
    ]
    effects = analysis and {
        "measure": primary_in_words(analysis),
        "margin": edges.axis.margin,
        "confidence": f"{1 - analysis.alpha:.0%}",
        "limit": edges.axis.limit,
        "decimals": edges.decimals,
        "columns": ["variant", "against", "change", "verdict", *EFFECTS],
        "rows": rows,
    }
    published = [{"label": plot.label, "rows": plot.rows} for plot in plots]
    return {"title": title, "effects": effects if rows else None, "published": published or None}
