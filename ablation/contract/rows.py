"""Names and Arrow types of the columns of the Parquet files that stages leave."""

METRICS = {"step": "int64", "name": "string", "value": "float64"}
"""`metrics.parquet`: a number that was logged."""

ITEMS = {"item": "string", "subset": "string", "protocol": "string", "name": "string", "value": "float64"}
"""`items.parquet`: a value of an evaluation item."""

OF_THE_MACHINE = r"(?i)(?:^|/)(?:time|wall|memory|perf|timing_s)[/_]|(?:time|seconds?|per_second|_mb|[/_]s)$"
"""Names of metrics that differ between two runs of the same computation."""

LONGEST_NAME = 500
"""Characters of an item, a subset, a protocol, a name or a cluster."""

LARGEST = 1e100
"""Magnitude of an item's value up to which runs are compared: squares and sums of such values are finite."""

CLUSTER = {"cluster": "string"}
"""A further column that `items.parquet` may have: items of one cluster (a target term, a template) share their noise.

Without it each item is a cluster of its own. With it every row has one, and all rows of an item in a subset the same.
"""

SHARDS = {"metrics": METRICS, "items": ITEMS}
"""Stem of the file, and table of the database: its columns."""

OPTIONAL: dict[str, dict[str, str]] = {"metrics": {}, "items": CLUSTER}
"""Stem of the file, and table of the database: the columns that a file may lack; the table then holds nulls."""

KEPT_STEP = "kept_step"
"""Metric of a stage whose run kept the model of an earlier step: its final metrics are those up to this step."""

LOGGED, LOGGED_VALUE = "logged", "value"
"""Protocol and name of a final metric as an evaluation item, for runs without items: the only item of its subset.

The judge then knows the noise between seeds alone, and says so.
"""
