"""Our own numbers beside a published table, with intervals, and why the two may not be comparable.

measured(store, measurements, published) -> tracker.judge.audit_reproduction.Measured
published_value(store, study, published) -> the item value that the published metric is a mean of
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracker.judge.audit_reproduction import Measured, MeasuredCell
from tracker.judge.audit_training import Curves, stated_metrics
from tracker.judge.measurements import Measurements
from tracker.judge.pairing import paired_values
from tracker.judge.significance import Array
from tracker.judge.statistics import contrast
from tracker.store.database import Store


def measured(store: Store, study: Measurements, published: Mapping[str, Any]) -> Measured:
    """Gather one study's cells under the names of the published columns: each subset's own name, and `mean` over
    them.
    """
    columns = published.get("columns") or []
    rows = {variant.name: _row(study, variant.name, columns) for variant in study.variants}
    return Measured(
        {variant: row for variant, row in rows.items() if row},
        _difference(store, study, published),
        {
            (delta["variant"], delta["against"], delta["column"]): cell
            for delta in published.get("deltas") or []
            if (cell := _delta(study, delta)) is not None
        },
        _curves(store, study.name, stated_metrics(published)),
    )


def published_value(store: Store, study: str, published: Mapping[str, Any]) -> str | None:
    """The item value that the published metric is a mean of (`ss` of `ss_distance`), or None where no item has it.

    A study may decide by another value than the one that its source prints, for example a graded one with less noise.
    """
    name = str(published.get("metric")).removesuffix("_distance")
    query = "SELECT 1 FROM finals JOIN items USING (key) WHERE study = ? AND items.name = ? LIMIT 1"
    return name if store.rows(query, [study, name])[1] else None


def _curves(store: Store, study: str, metrics: list[str]) -> Curves:
    """Values over the steps of the runs that ended well, one array per seed; what is not finite is left out."""
    text = """SELECT variant, stage, metric, seed, list(value ORDER BY step) AS course
              FROM curves JOIN runs USING (study, variant, seed)
              WHERE study = ? AND state = 'ok' AND list_contains(?, metric) AND isfinite(value)
              GROUP BY ALL ORDER BY variant, stage, metric, seed"""
    courses: dict[tuple[str, str, str], list[Array]] = {}
    for row in store.sql(text, [study, metrics]).itertuples() if metrics else ():
        courses.setdefault((row.variant, row.stage, row.metric), []).append(np.asarray(row.course))
    return courses


def _row(study: Measurements, variant: str, columns: list[str]) -> dict[str, MeasuredCell]:
    values, _, _ = paired_values(study, [variant])
    if not values:
        return {}
    parts: dict[str, list[Array]] = dict(zip(study.analysis.subsets, ([v] for v in values), strict=True))
    parts.setdefault("mean", values)
    return {column: _cell(study, parts[column]) for column in columns if column in parts}


def _delta(study: Measurements, delta: Mapping[str, Any]) -> MeasuredCell | None:
    """Our own difference for a published one, paired by seeds and items; in the metric's sense, not as a gain."""
    if not {delta["variant"], delta["against"]} <= {variant.name for variant in study.variants}:
        return None
    values, _, _ = paired_values(study, [delta["variant"], delta["against"]])
    parts: dict[str, list[Array]] = dict(zip(study.analysis.subsets, ([v] for v in values), strict=False))
    parts.setdefault("mean", values)
    if not values or delta["column"] not in parts:
        return None
    numbers = contrast(parts[delta["column"]], (1, -1), study.direction, confidence=1 - study.analysis.alpha)
    if study.direction == "max":
        return MeasuredCell(numbers.effect, numbers.low, numbers.high, numbers.seeds)
    return MeasuredCell(-numbers.effect, -numbers.high, -numbers.low, numbers.seeds)


def _cell(study: Measurements, values: list[Array]) -> MeasuredCell:
    numbers = contrast(values, (1,), study.direction, confidence=1 - study.analysis.alpha)
    if study.direction == "max":
        return MeasuredCell(numbers.effect, numbers.low, numbers.high, numbers.seeds)
    # A gain is minus the number that is printed; a distance is never below 0.
    low = -numbers.high if study.direction == "min" else max(0.0, -numbers.high)
    return MeasuredCell(-numbers.effect, low, -numbers.low, numbers.seeds)


def _difference(store: Store, study: Measurements, published: Mapping[str, Any]) -> str:
    scale = store.sql("SELECT value FROM meta WHERE key = 'scale'")["value"].tolist()
    reasons = [f"ours is at scale {scale[0]}" if scale and scale[0] != "paper" else ""]
    resolved = store.sql("SELECT resolved FROM variants WHERE study = ?", [study.name])["resolved"]
    models = [json.dumps((json.loads(text) if isinstance(text, str) else text or {}).get("model")) for text in resolved]
    theirs_is = published.get("model")
    if theirs_is is None:
        reasons.append("the source does not name its model")
    elif not all(theirs_is in model for model in models):
        reasons.append(f"the source's model is {theirs_is}, ours is another")
    counted = {subset: len(series) for run in study.values.values() for subset, series in run.items()}
    theirs = published.get("items") or {}
    if unequal := [subset for subset, count in counted.items() if theirs.get(subset, count) != count]:
        listed = ", ".join(f"{subset} {counted[subset]} against {theirs[subset]}" for subset in unequal)
        reasons.append(f"the items differ ({listed})")
    return " and ".join(reason for reason in reasons if reason)
