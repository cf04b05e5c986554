"""The rows that stages leave in Parquet files: names of the columns and their types, by Arrow's names of these."""

METRICS = {"step": "int64", "name": "string", "value": "float64"}
"""`metrics.parquet`: a number that was logged."""

ITEMS = {"item": "string", "subset": "string", "protocol": "string", "name": "string", "value": "float64"}
"""`items.parquet`: a value of an evaluation item."""

SHARDS = {"metrics": METRICS, "items": ITEMS}
"""Stem of the file, and table of the database: its columns."""
