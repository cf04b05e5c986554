"""The comparisons of a study as the page shows them: position in the tree, change, effect, verdict and evidence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from ablation.show.text import clean_records, interval, number, p_value, signed
from ablation.store.database import Store

TALLEST, LOOSEST = 160.0, 10.0  # of the picture of all effects, and of one of its rows: SVG units


@dataclass(frozen=True)
class GraphRow:
    """One variant in the graph: the node is in `lane`; a branch comes from the lane to its left.

    lines: of each lane in this row: "full", "top" (ends at the node), "bottom" (starts at the node) or "none".
    """

    variant: str
    lane: int
    branch: bool
    lines: tuple[str, ...]


def graph_rows(parents: Mapping[str, str | None]) -> list[GraphRow]:
    """Order variants depth first and give each a lane, as `git log --graph` does.

    `parents` maps every variant to its parent, in declared order. A node's largest subtree comes last and continues in
    its lane, so that the trunk of the study is one straight line and what was tried from it branches off to the right.
    A parent that is not itself a variant counts as none.
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
    """A horizontal axis shared by the comparisons of one study, symmetric about no effect. Lengths are SVG units."""

    limit: float
    margin: float | None
    width: float = 240.0
    pad: float = 10.0

    def x(self, value: float) -> float:
        """Return the position of an effect; effects beyond the axis are placed at its end."""
        share = min(max(value / self.limit, -1.0), 1.0)
        return round(self.pad + (share + 1) / 2 * (self.width - 2 * self.pad), 2)

    @property
    def ticks(self) -> list[float]:
        """Ticks: -t, 0 and t, where t is the largest of 1, 2, 5 times a power of ten inside the axis."""
        power = 10.0 ** math.floor(math.log10(self.limit))
        largest = max((m * power for m in (1, 2, 5) if m * power <= self.limit * (1 + 1e-9)), default=power)
        return [-largest, 0.0, largest]


def forest_axis(bounds: Sequence[float], margin: float | None) -> ForestAxis:
    """Return the axis for all interval bounds, but at most three times their upper quartile.

    One wide interval thus hides no other.
    """
    finite = sorted(abs(bound) for bound in bounds if math.isfinite(bound))
    if not finite:
        return ForestAxis(limit=margin * 2 if margin else 1.0, margin=margin)
    quartile = finite[3 * len(finite) // 4]
    limit = min(finite[-1], 3 * quartile) if quartile > 0 else finite[-1]
    limit = max(limit, 1.5 * (margin or 0.0)) * 1.05
    return ForestAxis(limit=limit if limit > 0 else 1.0, margin=margin)


@dataclass(frozen=True)
class ShownComparison:
    """One judged comparison. `evidence` is its row of `comparison_table`, `changes` the differences from `parent`."""

    child: str
    parent: str
    verdict: str
    evidence: Mapping[str, Any]
    changes: Sequence[Change]

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Interval that the page shows."""
        return shown_interval(self.evidence)


@dataclass(frozen=True)
class Forest:
    """All effects of a study, the best first. `paths`: the whiskers and points of each verdict as SVG paths."""

    count: int
    height: float
    paths: list[tuple[str, str, str]]


def draw_forest(comparisons: Sequence[ShownComparison], axis: ForestAxis) -> Forest:
    """Draw every measured effect in a separate row."""
    measured = [comparison for comparison in comparisons if is_number(comparison.evidence["effect"])]
    measured.sort(key=lambda comparison: -comparison.evidence["effect"])
    step = min(LOOSEST, TALLEST / max(len(measured), 1))
    paths: dict[str, tuple[list[str], list[str]]] = {}
    for place, comparison in enumerate(measured):
        y = round(step * (place + 0.5), 1)
        whiskers, points = paths.setdefault(comparison.verdict, ([], []))
        points.append(f"M{axis.x(comparison.evidence['effect'])} {y}h0")
        low, high = comparison.interval
        if is_number(low) and is_number(high):
            whiskers.append(f"M{axis.x(low)} {y}H{axis.x(high)}")
    joined = [(verdict, "".join(whiskers), "".join(points)) for verdict, (whiskers, points) in paths.items()]
    return Forest(len(measured), round(step * len(measured), 1), joined)


@dataclass(frozen=True)
class Strip:
    """All effects of a study side by side, the best first. Lengths are SVG units."""

    axis: ForestAxis
    comparisons: Sequence[ShownComparison]
    width: float = 1000.0
    height: float = 170.0
    left: float = 46.0

    @property
    def bars(self) -> list[tuple[ShownComparison, float]]:
        """Measured comparisons with their horizontal positions."""
        measured = [comparison for comparison in self.comparisons if is_number(comparison.evidence["effect"])]
        measured.sort(key=lambda comparison: -comparison.evidence["effect"])
        step = (self.width - self.left) / max(len(measured), 1)
        return [(comparison, round(self.left + step * (i + 0.5), 1)) for i, comparison in enumerate(measured)]

    @property
    def radius(self) -> float:
        """Radius of a point of the strip."""
        return round(min(4.0, 0.4 * (self.width - self.left) / max(len(self.comparisons), 1)), 2)

    def y(self, value: float) -> float:
        """Return the height of an effect; effects beyond the axis are placed at its end."""
        share = min(max(value / self.axis.limit, -1.0), 1.0)
        return round(8 + (1 - share) / 2 * (self.height - 16), 2)


@dataclass(frozen=True)
class ComparisonRow:
    """One variant in the tree, and its comparisons: with its parent, and others that the plan declares."""

    graph: GraphRow
    variant: PlannedVariant
    own: ShownComparison | None
    others: Sequence[ShownComparison]

    @property
    def comparisons(self) -> list[ShownComparison]:
        """Every judged comparison of the variant, the one with its parent first."""
        return [*([self.own] if self.own else []), *self.others]


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a study. `judged`: in the order of the rows. `counts`: number of each verdict."""

    rows: list[ComparisonRow]
    axis: ForestAxis
    decimals: int
    judged: list[ShownComparison]
    counts: list[tuple[str, int]]
    forest: Forest
    strip: Strip


def study_comparisons(variants: Sequence[PlannedVariant], verdicts: pd.DataFrame, margin: float | None) -> Comparisons:
    """Join the variants of one study with its verdicts, a table with one row per judged comparison."""
    records = clean_records(verdicts)
    named = {variant.name: variant for variant in variants}
    parents = {variant.name: variant.parent for variant in variants}
    graphs, rows = graph_rows(parents), []
    for graph in graphs:
        variant = named[graph.variant]
        comparisons = [_comparison(record, variant, named) for record in records if record["child"] == variant.name]
        to_parent = next((comparison for comparison in comparisons if comparison.parent == variant.parent), None)
        rows.append(
            ComparisonRow(
                graph, variant, to_parent, [comparison for comparison in comparisons if comparison is not to_parent]
            )
        )
    comparisons = [comparison for row in rows for comparison in row.comparisons]
    verdicts = [comparison.verdict for comparison in comparisons]
    counts = [(verdict, verdicts.count(verdict)) for verdict in VERDICTS if verdict in verdicts]
    intervals = [comparison.interval for comparison in comparisons]
    ends = [(low, high) for low, high in intervals if is_number(low) and is_number(high)]
    effects = [comparison.evidence["effect"] for comparison in comparisons if is_number(comparison.evidence["effect"])]
    axis = forest_axis([*effects, *chain(*ends)], margin)
    decimals = decimals_for(effects, [half(*each) for each in ends])
    return Comparisons(
        rows, axis, decimals, comparisons, counts, draw_forest(comparisons, axis), Strip(axis, comparisons)
    )


def _comparison(
    record: Mapping[str, Any], variant: PlannedVariant, named: Mapping[str, PlannedVariant]
) -> ShownComparison:
    parent, changes = record["parent"], list(variant.changes)
    if parent != variant.parent:
        changed_keys = differences(named[parent].resolved, variant.resolved)
        changes = [
            Change.model_validate({"key": key, "from": old, "to": new, "factor": key}) for key, old, new in changed_keys
        ]
    return ShownComparison(variant.name, parent, record["verdict"], record, changes)


def bound_of(store: Store, study: str, analysis: Analysis) -> float:
    """Return the largest possible effect: known if every item is right (1) or wrong (0), otherwise infinite."""
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
    """Return the verdicts with intervals cut at the largest possible effect."""
    if math.isinf(bound):
        return verdicts
    ends = [name for name in verdicts if name.endswith(("low", "high"))]
    cut = verdicts.assign(**{name: verdicts[name].clip(-bound, bound) for name in ends})
    return cut.assign(mde=cut["mde"].where(~(cut["mde"] > bound), math.inf))


FIRST = ("p", "p_adjusted", "seeds_needed")  # facts that stand open, with the interval
SHOWN: dict[str, tuple[str, Callable[[Any, int], str]]] = {
    "p": ("p", lambda value, _: p_value(value)),
    "p_adjusted": ("p, corrected for all changes", lambda value, _: p_value(value)),
    "p_sign_flip": ("p over seeds alone (sign flips)", lambda value, _: p_value(value)),
    "mde": ("minimum detectable effect (80% power)", lambda value, n: number(value, n) if value < math.inf else "none"),
    "seeds": ("seeds", lambda value, _: f"{value:,.0f}"),
    "items": ("items", lambda value, _: f"{value:,.0f}"),
    "seeds_needed": ("seeds needed to detect an effect this size", lambda value, _: f"{value:,.0f}"),
    "prior_df": ("degrees of freedom from other variants' noise", lambda value, _: rough(value)),
    "cost_hours": ("device time of this change", lambda value, _: duration(3600 * value)),
}
NOTHING_AT_ZERO = ("prior_df", "cost_hours")  # facts that are none where they are zero


def evidence(
    comparison: ShownComparison, decimals: int, analysis: Analysis, over: str
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (label, text) of the facts shown at once, and of those behind a click.

    over: for how many comparisons the interval that is shown holds.
    """
    record, (low, high) = comparison.evidence, comparison.interval
    first, facts = list[tuple[str, str]](), list[tuple[str, str]]()
    if is_number(low) and is_number(high):
        scope = "" if comparison.verdict == "equivalent" else over
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
        intervals.append((f"since {root}, for all such paths at once", "root_", since))
    for label, name, start in intervals:
        low, high = record.get(f"{name}low"), record.get(f"{name}high")
        if is_number(low) and is_number(high):
            facts.append((label, f"{start}{interval((low, high), decimals)}"))
    return first, facts
