"""What a command left becomes the metrics and items of its stage: the readers that its `collect` names.

    python -m tracker.imports.collected OUTPUT PLACE '[{"reader": "items", "place": "eval.csv"}]'

Writes PLACE/metrics.parquet and PLACE/items.parquet. The stage's runner starts it when the command has ended well. The
readers of files that anyone can write are `metrics` and `items` (tracker.imports.plain).

Each protocol, subset and name of items gives a metric `<protocol>/<subset>/<name>`, its mean, unless the command logged
one of that name; of several subsets there is `<protocol>/mean/<name>` as well.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from contract.atomic import replacing
from contract.errors import ConfigError, TrackerError
from tracker.imports.plain import read_items, read_metrics
from tracker.imports.run import ITEM_ROWS, METRIC_ROWS, ImportedRun

_PLAIN = {"items": read_items, "metrics": read_metrics}
Metrics = dict[tuple[int, str], float]


def main(arguments: Sequence[str]) -> int:
    """Read what a command left; return the exit status."""
    output, place = Path(arguments[0]), Path(arguments[1])
    try:
        metrics, items = collect(output, json.loads(arguments[2]))
        for name, table in (("metrics", metrics), ("items", items)):
            with replacing(place / f"{name}.parquet") as aside:
                pq.write_table(table, aside, compression="zstd")
    except (TrackerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def collect(output: Path, wanted: Sequence[Mapping[str, str]]) -> tuple[pa.Table, pa.Table]:
    """Return metrics and items of what the readers find below `output`.

    wanted: `{reader, place}`, the place a file, a folder or a pattern. Of one metric and step what was read last
    counts: runs in the order of their start, so that a run which went on replaces what it repeats.

    Raises:
        ConfigError: a reader finds nothing at its place, or not what it reads; an item's value is no number.
    """
    metrics: Metrics = {}
    items: list[pa.Table] = []
    for entry in wanted:
        for run in _runs(output, entry["reader"], entry["place"]):
            columns = (run.metrics.column(name).to_pylist() for name in ("step", "name", "value"))
            metrics.update({(step, name): value for step, name, value in zip(*columns, strict=True)})
            if run.items is not None:
                items.append(run.items)
    together = pa.concat_tables([ITEM_ROWS.empty_table(), *(table.select(ITEM_ROWS.names) for table in items)])
    for name, value in _means(together).items():
        if all(name != other for _, other in metrics):
            metrics[max((step for step, _ in metrics), default=0), name] = value
    rows = [(step, name, value) for (step, name), value in sorted(metrics.items(), key=lambda item: item[0][0])]
    by_column = [[row[place] for row in rows] for place in range(len(METRIC_ROWS))]
    return pa.table(by_column, schema=METRIC_ROWS), together


def _runs(output: Path, reader: str, place: str) -> Iterator[ImportedRun]:
    """Yield what one reader finds, by start; what it could not read it says on stderr, which is the stage's log."""
    read = _PLAIN[reader]
    paths = sorted(output.glob(place)) if set("*?[") & set(place) else [output / place]
    found: list[ImportedRun] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(path, "collect", reader, "there is nothing", "let the command write it, or mend `place`")
        found += read(path, lambda line: print(f"{reader}: {line}", file=sys.stderr))
    if not found:
        raise ConfigError(output / place, "collect", reader, "holds nothing to read", "mend the place, or the command")
    return iter(sorted(found, key=lambda run: run.started or ""))


def _means(items: pa.Table) -> dict[str, float]:
    """Return the mean of each protocol, subset and name, and that over the subsets where there are several."""
    groups = items.group_by(["protocol", "subset", "name"], use_threads=False).aggregate([("value", "mean")])
    found: dict[tuple[str, str], list[float]] = {}
    means: dict[str, float] = {}
    for row in groups.to_pylist():
        means[f"{row['protocol']}/{row['subset']}/{row['name']}"] = row["value_mean"]
        found.setdefault((row["protocol"], row["name"]), []).append(row["value_mean"])
    for (protocol, name), values in found.items():
        if len(values) > 1:
            means.setdefault(f"{protocol}/mean/{name}", sum(values) / len(values))
    return means


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
