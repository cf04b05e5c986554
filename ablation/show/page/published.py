"""Published and measured numbers: a small plot per column, and the findings of the audit by kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.audit.table import Finding
from ablation.show.tables import ComparisonTable

ROW, LEFT, PLOT, RIGHT, FOOT = 18, 112, 142, 12, 22  # SVG units
KINDS = {
    "mean": "Means and the columns that they average",
    "claim": "What the source claims",
    "share": "Values that item counts can produce",
    "attainability": "Values that no item count can produce",
    "grimmer": "Standard deviations that no item counts can produce",
    "noise": "Differences within the noise of the items",
    "reproduction": "Measured and published values",
}


def finding_groups(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Return [(heading, findings)] in the order of KINDS, each with the most severe findings first."""
    order = {"error": 0, "warn": 1}
    ranked = sorted(findings, key=lambda finding: order.get(finding.severity, 2))
    groups = [(title, [finding for finding in ranked if finding.kind == kind]) for kind, title in KINDS.items()]
    return [(title, members) for title, members in groups if members]


@dataclass(frozen=True)
class DotPlot:
    """A plot of the published and measured values of one column.

    rows: variant, published value, mean and standard deviation of the measured values. low, high: ends of the axis.
    """

    label: str
    rows: list[tuple[str, float | None, float | None, float | None]]
    low: float
    high: float
    left: int = LEFT
    width: int = LEFT + PLOT + RIGHT
    row: int = ROW

    @property
    def height(self) -> int:
        """Height of the plot in SVG units."""
        return ROW * len(self.rows) + FOOT

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        return round(LEFT + PLOT * (value - self.low) / (self.high - self.low or 1.0), 2)

    @property
    def ticks(self) -> list[float]:
        """Ticks: zero and at most three other multiples of a round step within [low, high]."""
        span = self.high - self.low or 1.0
        step = next(m * 10.0**e for e in range(-12, 13) for m in (1, 2, 5) if span / (m * 10.0**e) <= 3)
        first, last = -int(-self.low // step) if self.low < 0 else 0, int(self.high / step)
        return [round(step * k, 12) for k in range(min(first, 0), last + 1)]


def dot_plots(table: ComparisonTable) -> list[DotPlot]:
    """Return a plot per column with published numbers; each plot shows all variants that have any published number."""
    rows = [row for row in table.rows if any(value is not None for value in row.published)]
    plots = []
    for index, column in enumerate(table.columns):
        if not column.published or column.is_change or not rows:
            continue
        numbers = [(row.name, row.published[index], row.cells[index].mean, row.cells[index].sd) for row in rows]
        values = [0.0]  # axes of distances and rates start at zero, so that differences keep their proportion
        for _, published, mean, sd in numbers:
            values += [] if published is None else [published]
            values += [] if mean is None else [mean - (sd or 0.0), mean + (sd or 0.0)]
        plots.append(DotPlot(column.label, numbers, min(values), max(values)))
    return plots
