"""Published against measured: the audit's findings by kind, and one dot plot per column of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.audit.finding import Finding
from ablation.show.page.format import tick
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
