"""Names and Arrow types of the columns of the Parquet files that stages leave."""

METRICS = {"step": "int64", "name": "string", "value": "float64"}
"""Columns of `metrics.parquet`, which has one row for each logged number."""

ITEMS = {"item": "string", "subset": "string", "protocol": "string", "name": "string", "value": "float64"}
"""Columns of `items.parquet`, which has one row for each value of an evaluation item."""

OF_THE_MACHINE = r"(?i)(?:^|/)(?:time|wall|memory|perf|timing_s)[/_]|(?:time|seconds?|per_second|_mb|[/_]s)$"
"""Pattern of metrics, such as times, whose values differ between two runs of the same computation."""

LONGEST_NAME = 500
"""Largest number of characters of an item, a subset, a protocol, a name or a cluster."""

LARGEST = 1e100
"""Largest magnitude of an item's value; squares and sums of such values are finite."""

CLUSTER = {"cluster": "string"}
"""Optional column of `items.parquet`: items of one cluster, such as a target term or a template, share noise.

Without it, each item is its own cluster. With it, every row has a cluster, and an item in a subset has only one.
"""

SHARDS = {"metrics": METRICS, "items": ITEMS}
"""{name of the Parquet file and of its table in the database: columns}."""

OPTIONAL: dict[str, dict[str, str]] = {"metrics": {}, "items": CLUSTER}
"""{name of the Parquet file and of its table: columns that a file may lack, which are then null in the table}."""

KEPT_STEP = "kept_step"
"""Metric that names the step whose model a run kept; the run's final metrics are the last ones up to that step."""

LOGGED, LOGGED_VALUE = "logged", "value"
"""Protocol and name under which a final metric serves as the only evaluation item of its subset, in runs without items.

Verdicts on these runs cover only the noise between seeds, and say so.
"""
