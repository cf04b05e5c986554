"""The edges of a study as the page shows them: place in the lineage, change, effect, verdict and evidence."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ablation.config.changes import differences
from ablation.config.study import Change
from ablation.config.study_schema import Analysis, Target
from ablation.judge.edges import WORDS
from ablation.plan.plan_file import PlannedVariant
from ablation.show.page.format import decimals_for, duration, is_number, number, p_value, signed
from ablation.show.page.lineage import ForestAxis, GraphRow, Picture, forest_axis, graph_rows, picture
from ablation.show.page.plots import DotPlot
from ablation.show.text import describe_change
from ablation.store.database import Store


@dataclass(frozen=True)
class Interval:
    """Positions of an effect and its interval on the shared axis, clipped to its ends; None if not known."""

    point: float
    low: float | None
    high: float | None
    arrow_low: bool
    arrow_high: bool


@dataclass(frozen=True)
class Comparison:
    """One judged edge: with `parent`, which need not be the variant's own; `changes` is what differs from it."""

    parent: str
    verdict: str
    evidence: Mapping[str, Any]
    interval: Interval | None
    changes: Sequence[Change]


@dataclass(frozen=True)
class EdgeRow:
    """One variant in the lineage and the edge that leads to it (`verdict` None: no such edge was judged).

    `others`: the edges that the analysis plan declares with variants other than its parent.
    """

    graph: GraphRow
    variant: PlannedVariant
    verdict: str | None
    evidence: Mapping[str, Any]
    interval: Interval | None
    others: Sequence[Comparison] = ()

    @property
    def comparisons(self) -> list[Comparison]:
        """Every judged edge of the variant, the one with its parent first."""
        if self.verdict is None or self.variant.parent is None:
            return list(self.others)
        own = Comparison(self.variant.parent, self.verdict, self.evidence, self.interval, self.variant.changes)
        return [own, *self.others]

    @property
    def word(self) -> str | None:
        """The variant's verdict: of the edge with its parent, or else of the first other edge."""
        return next((comparison.verdict for comparison in self.comparisons), None)


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

    @property
    def comparisons(self) -> list[tuple[str, Comparison]]:
        """Every judged edge with its variant's name, in the order of the rows."""
        return [(row.variant.name, comparison) for row in self.rows for comparison in row.comparisons]


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
    named = {variant.name: variant for variant in variants}
    rows = []
    parents = {variant.name: variant.parent for variant in variants}
    graphs = graph_rows(parents)
    for graph in graphs:
        variant = named[graph.variant]
        own = by_edge.get((variant.parent, variant.name), {})
        others = tuple(
            Comparison(parent, record["verdict"], record, _interval(record, axis), _changes(named.get(parent), variant))
            for (parent, child), record in by_edge.items()
            if child == variant.name and parent != variant.parent
        )
        rows.append(EdgeRow(graph, variant, own.get("verdict"), own, _interval(own, axis), others))
    found = [record["verdict"] for record in records if record["child"] in named]
    words = [*WORDS, *sorted(set(found) - set(WORDS))]
    counts = [(word, found.count(word)) for word in words if word in found]
    decimals = decimals_for(halves or [margin or math.nan], least=3)
    return Edges(rows, axis, decimals, counts, picture(graphs, parents))


def _changes(parent: PlannedVariant | None, child: PlannedVariant) -> list[Change]:
    """What differs between two variants that are not parent and child."""
    found = differences(parent.resolved, child.resolved) if parent else ()
    return [Change.model_validate({"key": key, "from": old, "to": new, "factor": key}) for key, old, new in found]


def _interval(record: Mapping[str, Any], axis: ForestAxis) -> Interval | None:
    effect, low, high = (record.get(key) for key in ("effect", "low", "high"))
    if not is_number(effect):
        return None
    if not (is_number(low) and is_number(high)):
        return Interval(axis.x(effect), None, None, arrow_low=False, arrow_high=False)
    return Interval(axis.x(effect), axis.x(low), axis.x(high), low < -axis.limit, high > axis.limit)


def bound_of(store: Store, study: str, analysis: Analysis) -> float:
    """The largest possible effect: known if every item is either right (1) or wrong (0), otherwise infinite."""
    _, [[right_or_wrong]] = store.rows(
        "SELECT bool_and(value IN (0, 1)) FROM finals JOIN items USING (key)"
        " WHERE study = ? AND protocol = ? AND name = ?",
        [study, analysis.protocol, analysis.value],
    )
    if not right_or_wrong:  # None without items
        return math.inf
    target = analysis.direction.target if isinstance(analysis.direction, Target) else 0.0
    return max(target, 1 - target)


def within(verdicts: pd.DataFrame, bound: float) -> pd.DataFrame:
    """The verdicts with intervals cut at the largest possible effect, beyond which nothing can be detected."""
    if math.isinf(bound):
        return verdicts
    ends = [name for name in verdicts if name.endswith(("low", "high"))]
    cut = verdicts.assign(**{name: verdicts[name].clip(-bound, bound) for name in ends})
    return cut.assign(mde=cut["mde"].where(~(cut["mde"] > bound), math.inf))


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


SHOWN: dict[str, tuple[str, Callable[[Any, int], str]]] = {
    "p": ("p", lambda value, _: p_value(value)),
    "p_adjusted": ("p, corrected for all changes", lambda value, _: p_value(value)),
    "p_sign_flip": ("p over seeds alone (sign flips)", lambda value, _: p_value(value)),
    "mde": ("smallest effect found with 80% power", lambda value, n: number(value, n) if value < math.inf else "none"),
    "seeds": ("seeds", lambda value, _: f"{value:.0f}"),
    "items": ("items", lambda value, _: f"{value:,.0f}"),
    "seeds_needed": ("seeds needed for an effect this large", lambda value, _: f"{value:,.0f}"),
    "prior_df": ("degrees of freedom from other variants' noise", lambda value, _: f"{value:.2g}"),
    "cost_hours": ("device time of this change", lambda value, _: duration(3600 * value)),
}


def evidence(record: Mapping[str, Any], decimals: int) -> list[tuple[str, str]]:
    """(label, text) of every fact that is known."""
    facts = [
        (label, show(record[key], decimals))
        for key, (label, show) in SHOWN.items()
        if is_number(record.get(key)) or record.get(key) == math.inf
    ]
    facts += [
        (label, f"{start}[{signed(record[low], decimals)}, {signed(record[high], decimals)}]")
        for label, start, low, high in _intervals(record, decimals)
        if is_number(record.get(low)) and is_number(record.get(high))
    ]
    return facts


def _intervals(record: Mapping[str, Any], decimals: int) -> Iterator[tuple[str, str, str, str]]:
    """Label, text before the interval, and the keys of its ends."""
    yield "interval, corrected for all changes", "", "joint_low", "joint_high"
    root = record.get("root")
    if root and root != record.get("parent"):
        yield (
            f"since {root}, for all such paths at once",
            f"{signed(record['root_effect'], decimals)} ",
            "root_low",
            "root_high",
        )


EFFECTS = ("effect", "low", "high", "p", "p_adjusted", "seeds", "items")


def figure_data(title: str, edges: Edges, plots: list[DotPlot]) -> dict[str, Any]:
    """Return `{title, effects, published}`, the numbers behind the page's figures; None for a figure that it lacks.

    effects: `{columns, rows}`, a row being variant, against, change, verdict and the numbers of EFFECTS (null where
    there is none), in the order of the lineage. published: `[{label, rows: [[variant, published, measured, sd]]}]`.
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
    effects = {"columns": ["variant", "against", "change", "verdict", *EFFECTS], "rows": rows}
    published = [{"label": plot.label, "rows": plot.rows} for plot in plots]
    return {"title": title, "effects": effects if rows else None, "published": published or None}
