"""Reads the measurements of one study from the database."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa

from ablation.config.study_schema import Analysis
from ablation.contract.display import one_line
from ablation.contract.rows import LOGGED
from ablation.judge.measurements import PACKAGES, Column, Environment, Measurements, Rule, Weights, measurements_of
from ablation.store.database import Run, Store

_MEAN = {"samples": None, "pass_at": None, "cons_at": None, "transform": None}  # keys of a plan that judges a mean


def read_measurements(store: Store, name: str, value: str | None = None, *, helpers: bool = False) -> Measurements:
    """Read one study from the database.

    value: name of the item value whose mean is judged, instead of the analysis plan's.
    helpers: include variants that `explain` wrote between two others; they do not count for the study's verdicts.
    """
    definition = store.study(name)
    analysis = definition.analysis.model_copy(update={"value": value} | _MEAN if value else {})
    variants = store.variants(name, helpers=helpers)
    runs = store.runs(name, helpers=helpers)
    # Rows stand in the order of the plan, where added seeds follow those that were there.
    added = store.sql("SELECT seed FROM run_stages WHERE study = ? GROUP BY seed ORDER BY min(rowid)", [name])
    place = {int(seed): number for number, seed in enumerate(added["seed"])}
    runs = runs.sort_values("seed", key=lambda seeds: seeds.map(place), kind="stable")
    stages = store.sql(
        """SELECT r.variant, r.seed, r.key, s.device_hours AS hours
           FROM run_stages r JOIN stages s USING (key) WHERE r.study = ? ORDER BY r.variant, r.seed, r.position""",
        [name],
    )
    broken = _broken_rules(store, name)
    values, duplicates = _items(store, name, analysis)
    return measurements_of(
        name,
        analysis,
        variants,
        {(r["variant"], int(r["seed"])): (r["state"], r["reason"] or "") for r in runs.to_dict("records")},
        values,
        duplicates=duplicates,
        samples={variant.name: count for variant in variants if (count := analysis.samples_in(variant.resolved))},
        clusters=_clusters(store, name, analysis),
        aborted={run: "; ".join(map(str, rules)) for run, rules in broken["abort"].items()},
        warned=broken["warn"],
        stages=stages,
        weights=_trained_weights(store, name),
        environments=_environments(store, name),
        imported=bool(definition.imported),
        planned=not definition.imported,
        steps=_steps(store, name, analysis),
        kept=definition.kept,
        history=definition.analysis_history,
    )


def _broken_rules(store: Store, name: str) -> dict[str, dict[Run, list[Rule]]]:
    """Return the health rules that runs broke: {severity: {run: rules}}."""
    events = store.sql(
        """SELECT DISTINCT r.variant, r.seed, h.severity, h.rule || ': ' || h.diagnosis AS said, h.rule, h.diagnosis
           FROM run_stages r JOIN health h USING (key)
           WHERE r.study = ? AND h.severity IN ('abort', 'warn') ORDER BY ALL""",
        [name],
    )
    broken: dict[str, dict[Run, list[Rule]]] = {"abort": {}, "warn": {}}
    for event in events.to_dict("records"):
        rule = Rule(event["rule"], event["diagnosis"])
        broken[event["severity"]].setdefault((event["variant"], int(event["seed"])), []).append(rule)
    return broken


_CHOSEN = """
WITH ended AS (SELECT key, dense_rank() OVER (ORDER BY variant, seed) - 1 AS run FROM finals WHERE study = ?),
chosen AS (SELECT run, list_position(?, subset) - 1 AS subset, item, value FROM ended JOIN items USING (key)
           WHERE protocol = ? AND name = ? AND list_contains(?, subset)),
numbered AS (SELECT item, row_number() OVER (ORDER BY item) - 1 AS number FROM (SELECT DISTINCT item FROM chosen))
"""


def _items(store: Store, name: str, analysis: Analysis) -> tuple[dict[Run, dict[str, Column]], frozenset[Run]]:
    """Return {run: {subset: values by item, sorted}} of runs that succeeded, and the runs that have an item twice."""
    # Runs, subsets and items are read as numbers: the names of millions of rows would take gigabytes.
    subsets = sorted(analysis.subsets)
    where = [name, subsets, analysis.protocol, analysis.value, subsets]
    names = pd.Index([item for (item,) in store.rows(f"{_CHOSEN} SELECT item FROM numbered ORDER BY number", where)[1]])
    ended = store.rows("SELECT DISTINCT variant, seed FROM finals WHERE study = ? ORDER BY variant, seed", [name])[1]
    place = f"(run * {len(subsets)} + subset) * {len(names)} + number"  # sorted here, in a third of DuckDB's memory
    rows = store.arrow(f"{_CHOSEN} SELECT CAST({place} AS BIGINT), value FROM chosen JOIN numbered USING (item)", where)
    places, values = (column.to_numpy() for column in rows.columns)
    del rows
    order = np.argsort(places, kind="stable")
    values, places = values[order], places[order]
    pa.default_memory_pool().release_unused()  # Arrow would keep what held the rows
    groups, numbers = np.divmod(places, max(len(names), 1))
    numbers = numbers.astype(np.int32)
    ends = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    columns: dict[Run, dict[str, Column]] = {}
    duplicates: set[Run] = set()
    lists: dict[bytes, pd.Index] = {}  # most runs have the same items
    for start, end in pairwise([0, *ends.tolist(), len(values)] if len(values) else []):
        key = numbers[start:end].tobytes()
        index = lists[key] if key in lists else lists.setdefault(key, names[numbers[start:end]])
        run, subset = divmod(int(groups[start]), len(subsets))
        columns.setdefault(ended[run], {})[subsets[subset]] = Column(index, values[start:end])
        if index.has_duplicates:
            duplicates.add(ended[run])
    return columns, frozenset(duplicates)


def _clusters(store: Store, name: str, analysis: Analysis) -> list[tuple[str, str, str]]:
    """Return (subset, item, cluster) of the items whose runs name clusters, each once, sorted."""
    _, rows = store.rows(
        """SELECT DISTINCT i.subset, i.item, i.cluster FROM finals f JOIN items i USING (key)
           WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset) AND i.cluster IS NOT NULL
           ORDER BY ALL""",
        [name, analysis.protocol, analysis.value, analysis.subsets],
    )
    return rows


def _steps(store: Store, name: str, analysis: Analysis) -> dict[Run, list[int]]:
    """Return {run: step} of the final metrics that are judged; {} if items are judged."""
    if analysis.protocol != LOGGED:
        return {}
    query = """SELECT variant, seed, step FROM finals JOIN metrics USING (key)
               WHERE study = ? AND list_contains(?, name) ORDER BY variant, seed, name"""
    steps: dict[Run, list[int]] = {}
    for variant, seed, step in store.rows(query, [name, analysis.subsets])[1]:
        steps.setdefault((variant, int(seed)), []).append(step)
    return steps


def _trained_weights(store: Store, name: str) -> dict[Run, dict[str, Weights]]:
    trained = store.sql(
        """SELECT r.variant, r.seed, r.stage, r.key, w.digest, w.moved, r.stage = ? AS last
           FROM run_stages r JOIN weights w USING (key) WHERE r.study = ?""",
        [store.study(name).last_stage, name],
    )
    weights: dict[Run, dict[str, Weights]] = {}
    for row in trained.to_dict("records"):
        made = Weights(row["key"], row["digest"], tuple(row["moved"]), bool(row["last"]))
        weights.setdefault((row["variant"], int(row["seed"])), {})[row["stage"]] = made
    return weights


def _environments(store: Store, name: str) -> dict[Run, dict[str, Environment]]:
    versions = ", ".join(f"p.data->'packages'->>'{package}'" for package in PACKAGES)
    device = "regexp_replace(s.device, '^[0-9]+ x ', '')"
    _, rows = store.rows(
        f"""SELECT r.variant, r.seed, r.stage, r.key, {versions},
               CASE WHEN s.device = 'cpu' THEN p.data->'hardware'->>'processor' ELSE {device} END,
               CAST(s.devices AS VARCHAR)
           FROM run_stages r JOIN stages s USING (key) JOIN provenance p USING (key) WHERE r.study = ?
           ORDER BY r.variant, r.seed, r.position""",
        [name],
    )
    environments: dict[Run, dict[str, Environment]] = {}
    for variant, seed, stage, *facts in rows:
        words = (text and one_line(text, 100) for text in facts)  # of any program
        environments.setdefault((variant, int(seed)), {})[stage] = Environment(*words)
    return environments
