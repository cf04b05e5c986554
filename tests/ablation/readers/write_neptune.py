"""Writes Parquet as neptune-exporter does: its published schema, a row for each value, a run in parts."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(  # of its README and src/neptune_exporter/model.py, February 2026
    [
        ("project_id", pa.string()),
        ("run_id", pa.string()),
        ("attribute_path", pa.string()),
        ("attribute_type", pa.string()),
        ("step", pa.decimal128(18, 6)),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("int_value", pa.int64()),
        ("float_value", pa.float64()),
        ("string_value", pa.string()),
        ("bool_value", pa.bool_()),
        ("datetime_value", pa.timestamp("ms", tz="UTC")),
        ("string_set_value", pa.list_(pa.string())),
        ("file_value", pa.struct([("path", pa.string())])),
        (
            "histogram_value",
            pa.struct([("type", pa.string()), ("edges", pa.list_(pa.float64())), ("values", pa.list_(pa.float64()))]),
        ),
    ]
)
NOW = datetime(2025, 11, 3, 12, 0, 0, 250_000, UTC)


def setting(path, value):
    """A single value."""
    kinds = {bool: "bool", int: "int", float: "float", str: "string", datetime: "datetime", list: "string_set"}
    kind = kinds[type(value)]
    return {"attribute_path": path, "attribute_type": kind, f"{kind}_value": value}


def series(path, points):
    """A series of numbers, {step: value}."""
    common = {"attribute_path": path, "attribute_type": "float_series", "timestamp": NOW}
    return [common | {"step": Decimal(str(step)), "float_value": value} for step, value in points.items()]


def write_run(folder, run, *parts, project="team/rates"):
    """Write a run, a file for each list of rows; return the files."""
    place = folder / f"{project.replace('/', '_')}-0123456789abcdef"
    place.mkdir(parents=True, exist_ok=True)
    files = [place / f"{run}-fedcba9876543210_part_{number}.parquet" for number in range(len(parts))]
    for file, rows in zip(files, parts, strict=True):
        table = pa.Table.from_pylist([{"project_id": project, "run_id": run} | row for row in rows], schema=SCHEMA)
        pq.write_table(table, file, compression="snappy")
    return files


def write_export(folder):
    """Write two variants of three seeds: the accuracy of `fast` grows twice as quickly."""
    for seed in range(3):
        for name, rate in (("base", 0.1), ("fast", 0.2)):
            rows = [
                setting("sys/id", f"RAT-{seed}{name[0]}"),
                setting("sys/creation_time", NOW),
                setting("params/seed", seed),
                setting("params/lr", rate),
                *series("acc", {step: step * rate + seed / 100 for step in range(3)}),
            ]
            write_run(folder, f"{name}-s{seed}", rows)
