"""The edges of a study as the page shows them: place in the lineage, change, effect, verdict and evidence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracker.judge.edges import WORDS
from tracker.plan.plan_file import PlannedVariant
from tracker.show.page.format import decimals_for, is_number
from tracker.show.page.lineage import ForestAxis, GraphRow, Picture, forest_axis, graph_rows, picture


@dataclass(frozen=True)
class Interval:
    """Where an effect and its interval lie on the shared axis; None where there is no number.

    `outside` is -1 or 1 where even the effect itself lies beyond that end of the axis.
    """

    point: float
    outside: int
    low: float | None
    high: float | None
    arrow_low: bool
    arrow_high: bool


@dataclass(frozen=True)
class EdgeRow:
    """One variant in the lineage and the edge that leads to it (`verdict` None: no such edge was judged)."""

    graph: GraphRow
    variant: PlannedVariant
    verdict: str | None
    evidence: Mapping[str, Any]
    interval: Interval | None


@dataclass(frozen=True)
class Edges:
    """All edges of a study."""

    rows: list[EdgeRow]
    axis: ForestAxis
    decimals: int
    counts: list[tuple[str, int]]
    picture: Picture

    @property
    def judged(self) -> int:
        """Number of edges with a verdict."""
        return sum(count for _, count in self.counts)


def study_edges(variants: Sequence[PlannedVariant], verdicts: pd.DataFrame, margin: float | None) -> Edges:
    """Join the variants of one study with its verdicts.

    `verdicts` has a row per judged edge with at least parent, child and verdict; other columns may be missing, and a
    missing value is NaN or None.
    """
    records = clean_records(verdicts)
    bounds = [abs(r[k]) for r in records for k in ("low", "high", "effect") if is_number(r.get(k))]
    axis = forest_axis(bounds, margin)
    halves = [(r["high"] - r["low"]) / 2 for r in records if is_number(r.get("low")) and is_number(r.get("high"))]
    by_edge = {(record["parent"], record["child"]): record for record in records}
    by_child = {record["child"]: record for record in reversed(records)}  # a plan may name others than the parent
    named = {variant.name: variant for variant in variants}
    rows = []
    parents = {variant.name: variant.parent for variant in variants}
    graphs = graph_rows(parents)
    for graph in graphs:
        variant = named[graph.variant]
        rows.append(
            _row(graph, variant, by_edge.get((variant.parent, graph.variant)) or by_child.get(graph.variant, {}), axis)
        )
    found = [row.verdict for row in rows if row.verdict]
    words = [*WORDS, *sorted(set(found) - set(WORDS))]
    counts = [(word, found.count(word)) for word in words if word in found]
    decimals = decimals_for(halves or [margin or math.nan], least=3)
    return Edges(rows, axis, decimals, counts, picture(graphs, parents))


def _row(graph: GraphRow, variant: PlannedVariant, record: Mapping[str, Any], axis: ForestAxis) -> EdgeRow:
    return EdgeRow(graph, variant, record.get("verdict"), record, _interval(record, axis))


def _interval(record: Mapping[str, Any], axis: ForestAxis) -> Interval | None:
    effect, low, high = (record.get(key) for key in ("effect", "low", "high"))
    if not is_number(effect):
        return None
    point, outside = axis.x(effect), (1 if effect > 0 else -1) if axis.beyond(effect) else 0
    if not (is_number(low) and is_number(high)):
        return Interval(point, outside, None, None, arrow_low=False, arrow_high=False)
    return Interval(point, outside, axis.x(low), axis.x(high), low < -axis.limit, high > axis.limit)


def clean_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain Python values, None for what is missing."""
    return [{str(key): _plain(value) for key, value in record.items()} for record in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    missing = value is pd.NaT or value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if missing else value
