"""Write a database of other tools' evaluations, in the schema of a grid's database, for the report page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa

from ablation.plan.plan_file import PlannedVariant
from ablation.readers.run import ITEM_ROWS
from ablation.store.analysis_history import StoredStudy
from ablation.store.collect import write_study
from ablation.store.database import SCHEMA, SCHEMA_VERSION
from ablation.store.shards import insert, insert_table

STAGE = "evaluate"
SCALE = "as evaluated"  # runs made elsewhere: the page says so


def write_evaluated(
    path: Path,
    definition: StoredStudy,
    variants: Sequence[PlannedVariant],
    values: Mapping[tuple[str, int], Mapping[str, pd.Series]],
    clusters: Mapping[str, Mapping[str, str]],
) -> None:
    """Write a database of one study, in which each run is a stage in state `ok`, with its items and their means.

    `values` has, for each (variant, seed) and subset, the value of each item; `clusters` has, for each subset, the
    cluster of each item.
    """
    study, analysis = definition.name, definition.analysis
    keys = {run: f"{run[0]} {run[1]}" for run in values}
    metrics, items = [], [ITEM_ROWS.empty_table().append_column("key", pa.array([], pa.string()))]
    for run, by_subset in values.items():
        for subset, series in by_subset.items():
            metrics.append((keys[run], 0, f"{analysis.protocol}/{subset}/{analysis.value}", float(series.mean())))
            named, count = clusters.get(subset, {}), len(series)
            text_columns = [
                list(map(str, series.index)),
                *([word] * count for word in (subset, analysis.protocol, analysis.value)),
            ]
            columns = [*text_columns, series.to_numpy(dtype=float), [named.get(item) for item in series.index]]
            items.append(pa.table(columns, schema=ITEM_ROWS).append_column("key", pa.repeat(keys[run], count)))
    with duckdb.connect(str(path)) as database:
        database.execute(SCHEMA)
        insert(database, "meta", [("schema version", SCHEMA_VERSION), ("scale", SCALE)])
        write_study(database, definition, variants, [(study, *run, STAGE, 0, key) for run, key in keys.items()])
        stages = [(key, study, STAGE, run[1], key, "ok", "", 0.0, 1, 0) for run, key in keys.items()]
        names = ("key", "study", "stage", "seed", "label", "state", "reason", "wall_s", "attempt", "devices")
        insert_table(database, "stages", pa.table(list(zip(*stages, strict=True)), names=names))
        insert(database, "metrics", metrics)
        insert_table(database, "items", pa.concat_tables(items))
