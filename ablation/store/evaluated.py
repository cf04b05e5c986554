"""A database of evaluations by other tools, in the schema of a grid's database: the page is drawn from it.

write_evaluated(path, definition, variants, values, clusters)
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pandas as pd

from ablation.plan.plan_file import PlannedVariant
from ablation.store.database import SCHEMA, SCHEMA_VERSION
from ablation.store.stored_study import StoredStudy

STAGE = "evaluate"
SCALE = "as evaluated"  # runs made elsewhere: the page says so


def write_evaluated(
    path: Path,
    definition: StoredStudy,
    variants: Sequence[PlannedVariant],
    values: Mapping[tuple[str, int], Mapping[str, pd.Series]],
    clusters: Mapping[str, Mapping[str, str]],
) -> None:
    """Write a new database of one study: each run is one stage that is ok, with its items and their means."""
    study = definition.name
    with duckdb.connect(str(path)) as database:
        database.execute(SCHEMA)
        database.execute("INSERT INTO meta VALUES ('schema version', ?), ('scale', ?)", [SCHEMA_VERSION, SCALE])
        told = [
            study,
            definition.title,
            definition.question,
            definition.source,
            definition.model_dump_json(by_alias=True),
        ]
        database.execute("INSERT INTO studies VALUES (?, ?, ?, ?, ?)", told)
        for place, variant in enumerate(variants):
            known = json.loads(variant.model_dump_json(by_alias=True))
            row = [study, variant.name, variant.parent, place, variant.why, variant.file]
            row += [json.dumps(known[name]) for name in ("resolved", "factors", "changes")]
            database.execute("INSERT INTO variants VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for (name, seed), by_subset in values.items():
            _run(database, definition, (name, seed), by_subset, clusters)


def _run(
    database: duckdb.DuckDBPyConnection,
    definition: StoredStudy,
    run: tuple[str, int],
    by_subset: Mapping[str, pd.Series],
    clusters: Mapping[str, Mapping[str, str]],
) -> None:
    (variant, seed), study, analysis = run, definition.name, definition.analysis
    key = f"{variant} {seed}"
    columns = "key, study, stage, seed, label, state, reason, wall_s, attempt, devices"
    database.execute(
        f"INSERT INTO stages ({columns}) VALUES (?, ?, ?, ?, ?, 'ok', '', 0, 1, 0)", [key, study, STAGE, seed, key]
    )
    database.execute("INSERT INTO run_stages VALUES (?, ?, ?, ?, 0, ?)", [study, variant, seed, STAGE, key])
    for subset, series in by_subset.items():
        named = clusters.get(subset)
        frame = pd.DataFrame({"item": series.index, "value": series.to_numpy()})
        frame["cluster"] = [named.get(item) for item in series.index] if named else None
        database.register("frame", frame)
        database.execute(
            "INSERT INTO items (key, item, subset, protocol, name, value, cluster)"
            " SELECT ?, item, ?, ?, ?, value, CAST(cluster AS VARCHAR) FROM frame",
            [key, subset, analysis.protocol, analysis.value],
        )
        database.unregister("frame")
        metric = f"{analysis.protocol}/{subset}/{analysis.value}"
        database.execute("INSERT INTO metrics VALUES (?, 0, ?, ?)", [key, metric, float(series.mean())])
