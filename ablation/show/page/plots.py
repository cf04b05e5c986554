"""Small plots that HTML draws: published against measured values, and what each change gained against a guardrail."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.audit.table import Finding
from ablation.judge.edges import Edge
from ablation.judge.verdicts import JudgedStudy
from ablation.show.page.format import is_number, tick
from ablation.show.tables import ComparisonTable, Row

ROW, LEFT, PLOT, RIGHT, FOOT = 18, 112, 142, 12, 22  # SVG units


KINDS = {
    "group": "Taken together",
    "mean": "Means of their parts",
    "claim": "What the source claims",
    "together": "Numbers that no counts give at once",
    "share": "What counts of items can give at all",
    "attainability": "Values that no count of items can give",
    "grimmer": "Spreads that no counts of items can have",
    "test": "p-values, computed again",
    "chance": "The best of many rows",
    "spread": "Rows that differ too little",
    "duplicate": "Rows that are the same",
    "digits": "Last digits",
    "noise": "Differences within the noise of the items",
    "reproduction": "Measured beside published",
    "training": "Figures of the training",
}


@dataclass(frozen=True)
class FindingGroup:
    """The audit's findings of one kind, the most severe first."""

    title: str
    findings: list[Finding]


def finding_groups(findings: Sequence[Finding]) -> list[FindingGroup]:
    """Findings by kind: what sums them up first, single cells last."""
    order = {"error": 0, "warn": 1}
    kinds = [*KINDS, *sorted({finding.kind for finding in findings} - set(KINDS))]
    groups = [
        FindingGroup(
            KINDS.get(kind, kind),
            sorted((f for f in findings if f.kind == kind), key=lambda finding: order.get(finding.severity, 2)),
        )
        for kind in kinds
    ]
    return [group for group in groups if group.findings]


@dataclass(frozen=True)
class Dot:
    """One variant: x of the published and the measured value, and of the mean minus and plus one standard deviation."""

    name: str
    y: float
    published: float | None
    measured: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DotPlot:
    """One column; `ticks` are (x, text), `rows` the numbers: variant, published, mean and sd of ours."""

    label: str
    dots: list[Dot]
    ticks: list[tuple[float, str]]
    rows: list[tuple[str, float | None, float | None, float | None]]
    left: int = LEFT
    width: int = LEFT + PLOT + RIGHT

    @property
    def height(self) -> int:
        """Height of the drawing."""
        return ROW * len(self.dots) + FOOT


def dot_plots(table: ComparisonTable) -> list[DotPlot]:
    """One plot per column that has published numbers, with every variant that has one in any column."""
    rows = [row for row in table.rows if any(value is not None for value in row.published)]
    return [
        _dot_plot(column.label, index, rows) for index, column in enumerate(table.columns) if column.published and rows
    ]


def _dot_plot(label: str, index: int, rows: Sequence[Row]) -> DotPlot:
    values = [0.0]  # the axes of distances and rates start at zero: differences keep their proportion
    for row in rows:
        centre, half, reported = row.cells[index].mean, row.cells[index].sd or 0.0, row.published[index]
        values += [] if centre is None else [centre - half, centre + half]
        values += [] if reported is None else [reported]
    low, high = min(values), max(values)
    span = high - low or 1.0

    def x(value: float) -> float:
        return round(LEFT + PLOT * (value - low) / span, 2)

    dots = []
    for place, row in enumerate(rows):
        mean, sd, published = row.cells[index].mean, row.cells[index].sd, row.published[index]
        spread = None if mean is None or sd is None else (x(mean - sd), x(mean + sd))
        dots.append(
            Dot(
                name=row.name if len(row.name) <= 17 else f"{row.name[:16]}…",
                y=ROW * (place + 0.5),
                published=None if published is None else x(published),
                measured=None if mean is None else x(mean),
                low=spread[0] if spread else None,
                high=spread[1] if spread else None,
            )
        )
    numbers = [(row.name, row.published[index], row.cells[index].mean, row.cells[index].sd) for row in rows]
    return DotPlot(label, dots, [(x(value), tick(value)) for value in _round_ticks(low, high)], numbers)


def _round_ticks(low: float, high: float) -> list[float]:
    """Zero and at most three other multiples of a round step inside [low, high]."""
    span = high - low or 1.0
    step = next(m * 10.0**e for e in range(-12, 13) for m in (1, 2, 5) if span / (m * 10.0**e) <= 3)
    first, last = -int(-low // step) if low < 0 else 0, int(high / step)
    return [round(step * k, 12) for k in range(min(first, 0), last + 1)]


SIZE = 320  # pixels of a side


@dataclass(frozen=True)
class Cross:
    """One change in pixels: its effect and joint interval on the guardrail, then on the outcome, upwards."""

    child: str
    parent: str
    verdict: str
    rail: str
    x: tuple[float, float, float]  # effect, low, high
    y: tuple[float, float, float]


@dataclass(frozen=True)
class Plane:
    """One guardrail. Right and up is better; left of `bound` more than the margin is lost."""

    metric: str
    bound: float
    reach: tuple[float, float]  # of the axes, to either side of zero
    crosses: Sequence[Cross]


def planes(judged: JudgedStudy) -> list[Plane]:
    """A plane for each guardrail of a study, with the changes whose two effects were both measured."""
    edges, found = {edge.pair: edge for edge in judged.edges}, []
    for metric in dict.fromkeys(rail.metric for rails in judged.guarded.values() for rail in rails):
        both = [
            (edges[pair], rail)
            for pair, rails in judged.guarded.items()
            for rail in rails
            if rail.metric == metric and is_number(rail.edge.effect) and is_number(edges[pair].effect)
        ]
        if not both:
            continue
        margin = both[0][1].margin
        across = _reach([rail.edge for _, rail in both], margin)
        up = _reach([edge for edge, _ in both], judged.measurements.analysis.margin)
        crosses = [
            Cross(edge.child, edge.parent, edge.verdict, rail.word, _place(rail.edge, across), _place(edge, -up))
            for edge, rail in both
        ]
        found.append(Plane(metric, _pixel(-margin, across), (across, up), crosses))
    return found


def _reach(edges: Sequence[Edge], margin: float) -> float:
    """How far the axis reaches: every effect and the margin are inside, intervals may leave the plane."""
    return 1.5 * max([margin, *(abs(edge.effect) for edge in edges)])


def _place(edge: Edge, reach: float) -> tuple[float, float, float]:
    """The effect and its joint interval, which spans the plane if it is not known."""
    low, high = (edge.joint_low, edge.joint_high) if is_number(edge.joint_low) else (-abs(reach), abs(reach))
    return _pixel(edge.effect, reach), _pixel(low, reach), _pixel(high, reach)


def _pixel(value: float, reach: float) -> float:
    return round(SIZE / 2 * (1 + min(max(value / reach, -1.0), 1.0)), 1)
