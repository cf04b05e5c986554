"""Variants grouped by the value of one configuration key: a table with a row per value.

    keys_that_differ(variants) -> [key]            what a study can be grouped by
    keys_that_group(variants) -> [key]             those of which two variants share a value
    group_table(table, variants, key) -> ComparisonTable

A row averages the means over seeds of the variants that have the value, each variant once. These variants may differ in
other keys, too: a row describes, and is not an effect of the key.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablation.config import dotted
from ablation.contract.errors import ConfigError
from ablation.plan.plan_file import PlannedVariant
from ablation.show.tables import Cell, ComparisonTable, Row, with_decimals
from ablation.show.text import describe_value

ABSENT = "no such key"


def keys_that_differ(variants: Sequence[PlannedVariant]) -> list[str]:
    """The leaves of the configurations that are not the same in all variants, in the order of the configuration."""
    keys = dict.fromkeys(key for variant in variants for key, _ in dotted.leaves(variant.resolved))
    return [key for key in keys if len({value_of(variant, key) for variant in variants}) > 1]


def keys_that_group(variants: Sequence[PlannedVariant]) -> list[str]:
    """Those of them of which two variants have the same value: of the others every row would be a variant."""
    return [key for key in keys_that_differ(variants) if len({value_of(v, key) for v in variants}) < len(variants)]


def value_of(variant: PlannedVariant, key: str) -> str:
    """The value of a key, a leaf or a branch, as text."""
    value = dotted.get(variant.resolved, key)
    return ABSENT if value is dotted.MISSING else describe_value(value)


def check_key(key: str, studies: Mapping[str, Sequence[PlannedVariant]]) -> list[str]:
    """Return the studies that have the key. Raises ConfigError where none has."""
    if key == "seed":
        raise ConfigError("tables", "--by", key, "is what tables average over", "name a key of the configuration")
    having = [
        name
        for name, variants in studies.items()
        if any(dotted.get(variant.resolved, key) is not dotted.MISSING for variant in variants)
    ]
    if not having:
        known = sorted({key for variants in studies.values() for key in keys_that_differ(variants)})
        close = difflib.get_close_matches(key, known, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"keys that differ: {', '.join(known) or 'none'}"
        raise ConfigError("tables", "--by", key, "no variant has such a key", remedy)
    return having


def group_table(table: ComparisonTable, variants: Sequence[PlannedVariant], key: str) -> ComparisonTable:
    """The table of a study with a row per value of a key, in the order in which the values come."""
    rows = {row.name: row for row in table.rows if not row.is_reference}
    members: dict[str, list[Row]] = {}
    for variant in sorted(variants, key=lambda variant: list(rows).index(variant.name)):
        members.setdefault(value_of(variant, key), []).append(rows[variant.name])
    grouped = [_group(value, of_value) for value, of_value in members.items()]
    seeds = sorted({row.seeds for row in rows.values() if row.seeds})
    over = f"{seeds[0]} seeds" if len(seeds) == 1 else "their seeds"
    caption = (
        f"Scale: {table.scale}. Each row is the mean over the n variants with that value of {key}, of each variant's"
        f" mean over {over}, ± the standard deviation between variants. The variants may differ in other keys as well:"
        " a difference between two rows is not an effect of this key."
    )
    columns = tuple(
        with_decimals(replace(column, published=None), index, grouped) for index, column in enumerate(table.columns)
    )
    lacking = [f"{row.name} is left out: {row.status}" for row in rows.values() if row.status]
    title = f"{table.title}, by {key}"
    return ComparisonTable(
        study=table.study,
        title=title,
        scale=table.scale,
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
