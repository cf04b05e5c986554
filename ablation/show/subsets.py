"""The value that decides a study, of each variant on each data set (subset): the table that papers print."""

from dataclasses import replace

from ablation.config.study_schema import Analysis, Target
from ablation.show.tables import Cell, ComparisonColumn, ComparisonTable, Row, means_over, with_decimals
from ablation.store.database import Store

# One value a run and subset; NaN where an item's value is not finite, so that its cell is failed and never a number.
MEANS = """SELECT f.variant, f.seed, i.subset,
    CASE WHEN bool_and(isfinite(i.value)) THEN avg(i.value) ELSE 'NaN'::DOUBLE END AS value
FROM finals f JOIN items i USING (key)
WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset)
GROUP BY ALL ORDER BY f.variant, f.seed, i.subset"""


def subset_table(store: Store, table: ComparisonTable) -> ComparisonTable:
    """The rows of a study's table with a column per subset of its analysis plan, and their mean last.

    A cell is the mean over items, its spread that over seeds. With a target the last column is the mean distance from
    it: that, and not the distance of the mean, is what decides.
    """
    analysis = store.study(table.study).analysis
    _, found = store.rows(MEANS, [table.study, analysis.protocol, analysis.value, analysis.subsets])
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for variant, seed, subset, value in found:
        runs.setdefault(variant, {}).setdefault(seed, {})[subset] = value
    rows = [_row(row, runs.get(row.name, {}), analysis) for row in table.rows if not row.is_reference]
    labels = [
        *analysis.subsets,
        *([_last(analysis)] if len(analysis.subsets) > 1 or _target(analysis) is not None else []),
    ]
    columns = [ComparisonColumn(label, label, None) for label in labels]
    rows = [replace(row, cells=row.cells[: len(columns)], published=(None,) * len(columns)) for row in rows]
    better = f"closer to {target:g}" if (target := _target(analysis)) is not None else _larger(analysis)
    counts = {subset: count for subset, count in store.item_counts(table.study).itertuples(index=False)}
    items = ", ".join(f"{subset} {counts[subset]}" for subset in analysis.subsets if subset in counts) or "none yet"
    caption = (
        f"Scale: {table.scale}. {analysis.value} (protocol {analysis.protocol}) by subset; {better} is better. "
        f"Evaluation items: {items}. Mean over seeds ± standard deviation."
    )
    if averaged := means_over(store.study(table.study), store.variants(table.study), analysis.protocol):
        caption += f" {averaged}"
    shown = tuple(with_decimals(column, index, rows) for index, column in enumerate(columns))
    return replace(table, caption=caption, columns=shown, rows=tuple(rows), notes=(), suffix="-subsets")


def _row(row: Row, runs: dict[int, dict[str, float]], analysis: Analysis) -> Row:
    cells = [
        Cell(tuple(values[subset] for _, values in sorted(runs.items()) if subset in values))
        for subset in analysis.subsets
    ]
    whole = [values for _, values in sorted(runs.items()) if all(subset in values for subset in analysis.subsets)]
    target = _target(analysis)
    last = [
        sum(values[s] if target is None else abs(values[s] - target) for s in analysis.subsets) / len(analysis.subsets)
        for values in whole
    ]
    return replace(row, cells=(*cells, Cell(tuple(last))))


def _target(analysis: Analysis) -> float | None:
    return analysis.direction.target if isinstance(analysis.direction, Target) else None


def _last(analysis: Analysis) -> str:
    target = _target(analysis)
    if target is None:
        return "mean"
    return f"mean distance from {target:g}" if len(analysis.subsets) > 1 else f"distance from {target:g}"


def _larger(analysis: Analysis) -> str:
    return "larger" if analysis.direction == "max" else "smaller"
