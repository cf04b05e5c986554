"""The comparisons of a study as the page shows them: place in the variant tree, change, effect and evidence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pandas as pd

from ablation.config.study import Change, differences
from ablation.config.study_schema import Analysis, Target
from ablation.config.variant_tree import walk
from ablation.contract.numbers import confidence, decimals_for, duration, half, is_number, rough
from ablation.contract.rows import LOGGED
from ablation.judge.judged import VERDICTS
from ablation.plan.plan_file import PlannedVariant
from ablation.show.answer import shown_interval
from ablation.show.text import interval, number, p_value, signed
from ablation.store.database import Store

Record = Mapping[str, Any]  # a row of `comparison_table`, with the interval that is shown and the changes


@dataclass(frozen=True)
class GraphRow:
    """One variant in the graph of the tree: its node is in `lane`; a branch comes from the lane to the left.

    lines: the line of each lane in this row: "full", "top" (ends at the node), "bottom" (starts at the node) or "none".
    """

    variant: str
    lane: int
    branch: bool
    lines: tuple[str, ...]


def graph_rows(parents: Mapping[str, str | None]) -> list[GraphRow]:
    """Order variants depth first and give each a lane, as `git log --graph` does.

    `parents` maps every variant to its parent, in declared order. The largest subtree of a variant comes last and
    continues in the variant's lane, so the trunk of the study is a straight line with branches to the right. A parent
    that is not itself a variant counts as none.
    """
    places = list(walk(parents))  # parents before children
    children, sizes = {place.name: place.children for place in places}, dict.fromkeys(parents, 1)
    for place in reversed(places):
        if place.parent is not None:
            sizes[place.parent] += sizes[place.name]
    placed: list[tuple[str, int, bool, bool, frozenset[int]]] = []  # variant, lane, branch, joined from above, passing
    stack = [(place.name, 0, False, False, frozenset[int]()) for place in reversed(places) if place.parent is None]
    while stack:
        variant, lane, branch, joined, passing = stack.pop()
        placed.append((variant, lane, branch, joined, passing))
        below = sorted(children[variant], key=sizes.__getitem__)
        if below:
            stack.append((below[-1], lane, False, True, passing))
            stack.extend((child, lane + 1, True, False, passing | {lane}) for child in reversed(below[:-1]))
    width = 1 + max((lane for _, lane, *_ in placed), default=0)
    shapes = {(True, True): "full", (True, False): "top", (False, True): "bottom", (False, False): "none"}
    rows = []
    for variant, lane, branch, joined, passing in placed:
        lines = ["full" if index in passing else "none" for index in range(width)]
        lines[lane] = shapes[joined, bool(children[variant])]
        rows.append(GraphRow(variant, lane, branch, tuple(lines)))
    return rows


@dataclass(frozen=True)
class ForestAxis:
    """Axis for all comparisons of one study, symmetric about zero. Lengths are SVG units."""

    limit: float
    margin: float | None
    width: float = 240.0
    pad: float = 10.0

    def x(self, value: float) -> float:
        """Return the position of an effect. An effect beyond the axis is placed at the end of the axis."""
        share = min(max(value / self.limit, -1.0), 1.0)
        return round(self.pad + (share + 1) / 2 * (self.width - 2 * self.pad), 2)

    def y(self, value: float) -> float:
        """Return the distance of an effect from the top of an upright axis."""
        return round(self.width - self.x(value), 2)

    @property
    def upright(self) -> "ForestAxis":
        """Axis resized for a picture with vertical intervals."""
        return replace(self, width=170.0, pad=8.0)

    @property
    def ticks(self) -> list[float]:
        """Ticks: -t, 0 and t, where t is the largest of 1, 2, 5 times a power of ten inside the axis."""
        power = 10.0 ** math.floor(math.log10(self.limit))
        largest = max((m * power for m in (1, 2, 5) if m * power <= self.limit * (1 + 1e-9)), default=power)
        return [-largest, 0.0, largest]


def forest_axis(bounds: Sequence[float], margin: float | None) -> ForestAxis:
    """Return an axis for interval bounds that ends at most at three times their upper quartile.

    This keeps one wide interval from squeezing all others.
    """
    finite = sorted(abs(bound) for bound in bounds if math.isfinite(bound))
    if not finite:
        return ForestAxis(limit=margin * 2 if margin else 1.0, margin=margin)
    quartile = finite[3 * len(finite) // 4]
    limit = min(finite[-1], 3 * quartile) if quartile > 0 else finite[-1]
    limit = max(limit, 1.5 * (margin or 0.0)) * 1.05
    return ForestAxis(limit=limit if limit > 0 else 1.0, margin=margin)


@dataclass(frozen=True)
class ComparisonRow:
    """One variant in the tree, its comparison with its parent, and other comparisons that the plan declares."""

    graph: GraphRow
    variant: PlannedVariant
    own: Record | None
    others: Sequence[Record]

    @property
    def comparisons(self) -> list[Record]:
        """All comparisons of the variant; the comparison with its parent comes first."""
        return [*([self.own] if self.own else []), *self.others]


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a study, as the page shows them.

    judged: all, in the order of the rows. measured: those with an effect, the best first. counts: number per verdict.
    """

    rows: list[ComparisonRow]
    axis: ForestAxis
    decimals: int
    judged: list[Record]
    measured: list[Record]
    counts: list[tuple[str, int]]


def study_comparisons(
    variants: Sequence[PlannedVariant], records: Sequence[Record], margin: float | None
) -> Comparisons:
    """Join the variants of one study with the records of its comparisons."""
    named = {variant.name: variant for variant in variants}
    parents = {variant.name: variant.parent for variant in variants}
    graphs, rows = graph_rows(parents), []
    for graph in graphs:
        variant = named[graph.variant]
        shown = [
            {**record, "interval": shown_interval(record), "changes": _changes(variant, named[record["parent"]])}
            for record in records
            if record["child"] == variant.name
        ]
        own = next((record for record in shown if record["parent"] == variant.parent), None)
        rows.append(ComparisonRow(graph, variant, own, [record for record in shown if record is not own]))
    judged = [record for row in rows for record in row.comparisons]
    verdicts = [record["verdict"] for record in judged]
    counts = [(verdict, verdicts.count(verdict)) for verdict in VERDICTS if verdict in verdicts]
    ends = [record["interval"] for record in judged if all(map(is_number, record["interval"]))]
    measured = sorted((record for record in judged if is_number(record["effect"])), key=lambda each: -each["effect"])
    effects = [record["effect"] for record in measured]
    axis = forest_axis([*effects, *chain(*ends)], margin)
    decimals = decimals_for(effects, [half(*each) for each in ends])
    return Comparisons(rows, axis, decimals, judged, measured, counts)


def _changes(variant: PlannedVariant, parent: PlannedVariant) -> Sequence[Change]:
    """Return the changes from another variant, which need not be the parent in the tree."""
    if parent.name == variant.parent:
        return variant.changes
    changed = differences(parent.resolved, variant.resolved)
    return [Change.model_validate({"key": key, "from": old, "to": new, "factor": key}) for key, old, new in changed]


def bound_of(store: Store, study: str, analysis: Analysis) -> float:
    """Return the largest possible effect: infinite, unless every item of the study is right (1) or wrong (0)."""
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
    """Return the verdicts with intervals limited to the largest possible effect; a larger `mde` becomes infinite."""
    if math.isinf(bound):
        return verdicts
    ends = [name for name in verdicts if name.endswith(("low", "high"))]
    cut = verdicts.assign(**{name: verdicts[name].clip(-bound, bound) for name in ends})
    return cut.assign(mde=cut["mde"].where(~(cut["mde"] > bound), math.inf))


FIRST = ("p", "p_adjusted", "seeds_needed")  # facts that are shown at once, with the interval
SHOWN: dict[str, tuple[str, Callable[[Any, int], str]]] = {
    "p": ("p", lambda value, _: p_value(value)),
    "p_adjusted": ("p, corrected for all comparisons", lambda value, _: p_value(value)),
    "p_sign_flip": ("p of a sign-flip test over seeds", lambda value, _: p_value(value)),
    "mde": ("minimum detectable effect (80% power)", lambda value, n: number(value, n) if value < math.inf else "none"),
    "seeds": ("seeds", lambda value, _: f"{value:,.0f}"),
    "items": ("items", lambda value, _: f"{value:,.0f}"),
    "seeds_needed": ("seeds needed to detect an effect of this size", lambda value, _: f"{value:,.0f}"),
    "prior_df": ("degrees of freedom from other variants", lambda value, _: rough(value)),
    "cost_hours": ("device time of this change", lambda value, _: duration(3600 * value)),
}
NOTHING_AT_ZERO = ("prior_df", "cost_hours")  # facts that are left out if they are zero


def evidence(
    record: Record, decimals: int, analysis: Analysis, over: str
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the facts of a comparison as (label, text): those always shown, and those that a reader must unfold.

    over: the scope of the shown interval in words, from `interval_words`.
    """
    low, high = record["interval"]
    first, facts = list[tuple[str, str]](), list[tuple[str, str]]()
    if is_number(low) and is_number(high):
        scope = "" if record["verdict"] == "equivalent" else over
        label = f"{confidence(analysis.alpha)} interval {scope}".rstrip()
        first.append((label, interval((low, high), decimals)))
    for key, (label, show) in SHOWN.items():
        if not (is_number(record.get(key)) or record.get(key) == math.inf):
            continue
        if (not record[key] and key in NOTHING_AT_ZERO) or (key == "items" and analysis.protocol == LOGGED):
            continue
        alone = key == "p" and over  # the verdict rests on the corrected one
        (first if key in FIRST and not alone else facts).append((label, show(record[key], decimals)))
    if not over:
        first = [(label, text) for label, text in first if label != SHOWN["p_adjusted"][0]]
    level, root = f"{confidence(analysis.alpha)} interval", record.get("root")
    intervals = [
        (f"{level} of this comparison alone", "", ""),
        (f"{level} corrected for all comparisons", "joint_", ""),
    ]
    if root and root != record.get("parent"):
        since = f"{signed(record['root_effect'], decimals)} "
        intervals.append((f"effect relative to {root}, corrected for all paths of the variant tree", "root_", since))
    for label, name, start in intervals:
        low, high = record.get(f"{name}low"), record.get(f"{name}high")
        if is_number(low) and is_number(high):
            facts.append((label, f"{start}{interval((low, high), decimals)}"))
    return first, facts
