"""Tables made from a study's table: a column for each subset, or a row for each value of a configuration key."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablation.config import dotted
from ablation.config.names import suggest
from ablation.config.study_schema import Target
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, stated
from ablation.plan.plan_file import PlannedVariant
from ablation.show.tables import Cell, ComparisonColumn, ComparisonTable, Row, means_over, with_decimals
from ablation.show.text import describe_value
from ablation.store.database import Store

# A value per run and subset; NaN if the value of an item is not finite, which marks the cell as failed.
MEANS = """SELECT f.variant, f.seed, i.subset,
    CASE WHEN bool_and(isfinite(i.value)) THEN avg(i.value) ELSE 'NaN'::DOUBLE END AS value
FROM finals f JOIN items i USING (key)
WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset)
GROUP BY ALL ORDER BY f.variant, f.seed, i.subset"""


def subset_table(store: Store, table: ComparisonTable) -> ComparisonTable:
    """Return a study's table with a column per subset of the analysis plan, and a last column for the mean of subsets.

    A cell is the mean over items, ± the standard deviation over seeds. With a target, the last column is the mean of
    the distances from the target, which is what verdicts are based on, and not the distance of the mean.
    """
    analysis = store.study(table.study).analysis
    _, found = store.rows(MEANS, [table.study, analysis.protocol, analysis.value, analysis.subsets])
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for variant, seed, subset, value in found:
        runs.setdefault(variant, {}).setdefault(seed, {})[subset] = value
    target = analysis.direction.target if isinstance(analysis.direction, Target) else None
    several = len(analysis.subsets) > 1
    if target is None:
        better = "larger" if analysis.direction == "max" else "smaller"
        last = ["mean"] if several else []
    else:
        better = f"closer to {stated(target)}"
        last = [f"{'mean distance' if several else 'distance'} from {stated(target)}"]
    columns = [ComparisonColumn(label, label, None) for label in (*analysis.subsets, *last)]
    rows = []
    for row in table.rows:
        if row.is_reference:
            continue
        cells = _cells(runs.get(row.name, {}), analysis.subsets, target)[: len(columns)]
        rows.append(replace(row, cells=cells, published=(None,) * len(columns)))
    counts = dict(store.item_counts(table.study).itertuples(index=False))
    items = ", ".join(f"{subset} {counts[subset]}" for subset in analysis.subsets if subset in counts) or "none yet"
    caption = (
        f"{table.made} {analysis.value} (protocol {analysis.protocol}) by subset; {better} is better. "
        f"Evaluation items: {items}. Mean over seeds ± standard deviation."
    )
    if averaged := means_over(store.study(table.study), store.variants(table.study), analysis.protocol):
        caption += f" {averaged}"
    shown = tuple(with_decimals(column, index, rows) for index, column in enumerate(columns))
    return replace(table, caption=caption, columns=shown, rows=tuple(rows), notes=(), suffix="-subsets")


def _cells(runs: Mapping[int, Mapping[str, float]], subsets: Sequence[str], target: float | None) -> tuple[Cell, ...]:
    """Return a cell per subset, and one for the mean of the subsets or for their mean distance from the target."""
    in_order = [runs[seed] for seed in sorted(runs)]

    def mean(values: Mapping[str, float]) -> float:
        return sum(values[s] if target is None else abs(values[s] - target) for s in subsets) / len(subsets)

    cells = [Cell(tuple(values[subset] for values in in_order if subset in values)) for subset in subsets]
    whole = [values for values in in_order if all(subset in values for subset in subsets)]
    return (*cells, Cell(tuple(mean(values) for values in whole)))


ABSENT = "no such key"


def keys_that_differ(variants: Sequence[PlannedVariant]) -> list[str]:
    """Return the keys whose values differ between variants, in the order of the configuration."""
    keys = dict.fromkeys(key for variant in variants for key, _ in dotted.leaves(variant.resolved))
    return [key for key in keys if len({value_of(variant, key) for variant in variants}) > 1]


def keys_that_group(variants: Sequence[PlannedVariant]) -> list[str]:
    """Return the keys whose values differ between variants, and of which some variants share a value."""
    return [key for key in keys_that_differ(variants) if len({value_of(v, key) for v in variants}) < len(variants)]


def value_of(variant: PlannedVariant, key: str) -> str:
    """Return the value of a key as text; the key may name a single value or a map of values."""
    value = dotted.get(variant.resolved, key)
    return ABSENT if value is dotted.MISSING else describe_value(value)


def check_key(key: str, studies: Mapping[str, Sequence[PlannedVariant]]) -> list[str]:
    """Return the studies with a variant that has the key. Raises ConfigError if no study has one."""
    if key == "seed":
        remedy = "name another key of the configuration"
        raise ConfigError("tables", "--by", key, "cannot be used, because tables average over seeds", remedy)
    having = [
        name for name, variants in studies.items() if any(value_of(variant, key) != ABSENT for variant in variants)
    ]
    if not having:
        known = sorted({key for variants in studies.values() for key in keys_that_differ(variants)})
        remedy = suggest(key, known, "keys that differ")
        raise ConfigError("tables", "--by", key, "is not a key of any variant", remedy)
    return having


def group_table(table: ComparisonTable, variants: Sequence[PlannedVariant], key: str) -> ComparisonTable:
    """Return the table of a study with a row per value of a configuration key, in the order of first occurrence."""
    places = [
        index for index, column in enumerate(table.columns) if not column.is_change
    ]  # a row of several variants has no parent
    rows = {
        row.name: replace(row, cells=tuple(row.cells[index] for index in places))
        for row in table.rows
        if not row.is_reference
    }
    members: dict[str, list[Row]] = {}
    for variant in sorted(variants, key=lambda variant: list(rows).index(variant.name)):
        members.setdefault(value_of(variant, key), []).append(rows[variant.name])
    grouped = [_group(value, of_value) for value, of_value in members.items()]
    seeds = sorted({row.seeds for row in rows.values() if row.seeds})
    over = counted(seeds[0], "seed") if len(seeds) == 1 else "its seeds"
    caption = (
        f"{table.made} Each row is the mean ± standard deviation of the n variants with that value of {key}; "
        f"each variant counts with its mean over {over}. The variants may differ in other "
        "keys too, so a difference between two rows is not an effect of this key."
    )
    columns = tuple(
        with_decimals(replace(table.columns[column], published=None), index, grouped)
        for index, column in enumerate(places)
    )
    lacking = [f"{row.name} is left out: {row.status}" for row in rows.values() if row.status]
    return replace(
        table,
        title=f"{table.title}, by {key}",
        caption=caption,
        columns=columns,
        rows=tuple(grouped),
        notes=tuple(lacking),
        heads=(key, "variants", "n"),
        counted="variants",
        suffix=f"-by-{key}",
    )


def _group(value: str, rows: Sequence[Row]) -> Row:
    measured = [row for row in rows if not row.status]
    cells = []
    for index in range(len(rows[0].cells)):
        means = [row.cells[index].mean for row in measured]
        cells.append(Cell(tuple(mean for mean in means if mean is not None)))
    names = ", ".join(row.name for row in rows)
    state, reason = ("ok", "") if measured else (rows[0].state, rows[0].reason)
    empty = (None,) * len(cells)
    return Row(value, None, names, False, tuple(cells), empty, len(measured), len(rows), state, reason)
