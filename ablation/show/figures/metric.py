"""The figure `metric`: the primary metric of every variant, one dot per seed, mean, reference and published."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablation.config.study_schema import Analysis
from ablation.show.figures.style import INK, MUTED, PALETTE, finite, grid, names_down, room_for
from ablation.show.tables import ComparisonTable, Row
from ablation.show.text import plain, shortened

ROW, WIDTH = 0.23, 4.6  # inches
_NOTE = "Dot: one seed. Bar: mean of seeds."


def primary_column(table: ComparisonTable, analysis: Analysis) -> int:
    """The table's main column: the mean over subsets under the analysis' protocol, else the first."""
    for index, column in enumerate(table.columns):
        parts = column.metric.split("/")
        if len(parts) == 3 and parts[1] == "mean" and parts[0] == analysis.protocol:
            return index
    return 0


def draw_metric(table: ComparisonTable, analysis: Analysis) -> Figure:
    """Draw the primary metric of every variant."""
    index = primary_column(table, analysis)
    rows = [row for row in table.rows if not row.is_reference]
    references = [row for row in table.rows if row.is_reference and row.cells[index].mean is not None]
    published = " Diamond: published." if any(row.published[index] is not None for row in rows) else ""
    dashed = "".join(f" Dashed: {plain(row.name)}." for row in references)
    title = f"{table.title} ({table.scale} scale)"
    left = 0.2 + room_for([row.name for row in rows])
    figure, axes = grid(title, _NOTE + published + dashed, (1, 1), (WIDTH, ROW * max(len(rows), 1)), left=left)
    panel = axes[0, 0]
    names_down(panel, [row.name for row in rows])
    for row in references:
        panel.axvline(finite(row.cells[index].mean), color=MUTED, linestyle=(0, (4, 2)), linewidth=1)
    for place, row in enumerate(rows):
        _draw_row(panel, place, row, index)
    panel.set_xlabel(plain(table.columns[index].metric))
    return figure


def _draw_row(panel: Axes, place: int, row: Row, index: int) -> None:
    cell, published = row.cells[index], row.published[index]
    if cell.mean is None:
        note = plain(shortened(row.status or ("failed" if cell.failed else "not measured"), 60))
        across = panel.get_yaxis_transform()
        panel.text(0.02, place, note, transform=across, va="center", color=MUTED, style="italic")
    else:
        panel.plot(finite(cell.values), [place] * len(cell.values), ".", color=PALETTE[0], markersize=5, alpha=0.6)
        panel.plot([finite(cell.mean)], [place], "|", color=INK, markersize=9, markeredgewidth=1.8)
    if published is not None:
        panel.plot([published], [place], "D", color=PALETTE[1], markersize=4, markerfacecolor="none")
