"""Read the metrics and items of a stage from the output of its command, with the readers that `collect` names.

The stage's runner calls `collect` when the command has succeeded. The readers are those that ablation.config.formats
names for `collect`. Files that only an earlier, killed attempt wrote are ignored, unless they are in a folder of logs
to which this attempt added files.

Readers name evaluations during training as subsets `step N`. The items of each protocol's largest N are repeated as the
subset `last`.

If a run kept the model of an earlier step, according to its settings or to `at`, this step is logged as `kept_step`.
Final metrics are then those up to this step, and the subset `last` repeats the last evaluation up to this step, also in
files of items.

The mean of the items of each protocol, subset and name becomes the metric `<protocol>/<subset>/<name>`, unless the
command logged a metric of that name. Several subsets also give `<protocol>/mean/<name>`.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ablation.contract.errors import ConfigError, Mistakes, TrackerError
from ablation.contract.rows import KEPT_STEP
from ablation.readers.kept import kept_step
from ablation.readers.run import (
    A_STEP,
    ITEM_ROWS,
    METRIC_ROWS,
    ImportedRun,
    ItemsLost,
    item_means,
    load_reader,
    metric_table,
)
from ablation.readers.walk import is_aside

_OWN = ("items", "metrics")  # readers for which a stage may have several files
Metrics = dict[tuple[int, str], float]


def collect(output: Path, wanted: Sequence[Mapping[str, Any]], left: Sequence[str] = ()) -> tuple[pa.Table, pa.Table]:
    """Return the metrics and items that the readers find below `output`.

    wanted: mappings with the keys `reader`, `place` (a file, a folder or a pattern) and optionally `at` and, for a
    table, `columns` and `values`. If two readers find the same metric and step, the last one counts.
    left: paths, relative to `output`, of files to ignore because an earlier attempt wrote them.

    Raises ConfigError if a reader finds nothing, several runs, a file that it cannot read, or an item whose value is
    not a number, and TrackerError if a reader has lost items.
    """
    metrics: Metrics = {}
    items: list[pa.Table] = []
    old = frozenset(output / name for name in left)
    runs: list[tuple[ImportedRun, int | None, bool]] = []
    mistakes = Mistakes()
    for entry in wanted:
        with mistakes:
            runs += [(run, _kept(run, entry), entry.get("at") is not None) for run in _runs(output, entry, old)]
    mistakes.refuse()
    last_kept = max((kept for run, kept, _ in runs if kept is not None and run.metrics.num_rows), default=None)
    for run, kept, chosen in runs:
        columns = (run.metrics.column(name).to_pylist() for name in METRIC_ROWS.names)
        metrics.update({(step, name): value for step, name, value in zip(*columns, strict=True)})
        if run.items is not None:
            beside = run.metrics.num_rows == 0 and not chosen  # a file of items beside the log of a run
            items.append(_with_last(run.items, last_kept if beside else kept))
        if kept is not None and run.metrics.num_rows:
            metrics[pc.max(run.metrics["step"]).as_py(), KEPT_STEP] = float(kept)
    together = pa.concat_tables([ITEM_ROWS.empty_table(), *(table.select(ITEM_ROWS.names) for table in items)])
    logged = {name for _, name in metrics}
    last = max((step for step, _ in metrics), default=0)
    metrics |= {(last, name): value for name, value in item_means(together).items() if name not in logged}
    return metric_table((step, name, value) for (step, name), value in metrics.items()), together


def _runs(output: Path, entry: Mapping[str, Any], old: frozenset[Path]) -> list[ImportedRun]:
    """Return the runs that a reader finds; files that cannot be read are named in the log.

    Only the tracker's own formats, `items` and `metrics`, may give several runs.
    """
    reader, place = entry["reader"], entry["place"]
    read = load_reader(reader, "collect")
    more: dict[str, Any] = {name: entry[name] for name in ("columns", "values") if entry.get(name)}
    if "old" in signature(read).parameters:
        more["old"] = old
    paths = [output / place]
    if set("*?[") & set(place):
        paths = sorted(path for path in output.glob(place) if not is_aside(path.name))
    found: list[ImportedRun] = []
    for path in paths:
        if not path.exists():
            near = get_close_matches(path.name, [other.name for other in path.parent.glob("*")], n=1, cutoff=0.5)
            meant = f"did you mean {near[0]!r}?" if near else "make the command write it, or correct the path"
            raise ConfigError(path, "collect", reader, "the file does not exist", meant)
        if old and old.issuperset(_files(path)):
            _say(reader, f"{path}: ignored because it is from an earlier attempt")
            continue
        runs = read(path, partial(_say, reader), **more)
        found += (run for run in runs if not old or not old.issuperset(_files(run.source)))
    if not found and old:
        problem = "contains only files from an earlier attempt of the stage"
        remedy = "make the command write its files every time it succeeds"
        raise ConfigError(output / place, "collect", reader, problem, remedy)
    if not found:
        remedy = "correct the path, or make the command write its files there"
        raise ConfigError(output / place, "collect", reader, "contains nothing to read", remedy)
    if len(found) > 1 and reader not in _OWN:
        names = ", ".join(run.name for run in found[:5])
        problem = f"contains {len(found)} runs ({names}), but a stage may leave only one run"
        raise ConfigError(output / place, "collect", reader, problem, f"name one run in `collect`: {{{reader}: PATH}}")
    return found


def _say(reader: str, line: str) -> None:
    if isinstance(line, ItemsLost):
        raise TrackerError(f"{reader}: {line}")
    print(f"{reader}: {line}", file=sys.stderr)


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else iter([path])


def _kept(run: ImportedRun, entry: Mapping[str, Any]) -> int | None:
    """Return the step of the model that a run kept, and log this step; None if it is the last step of the run."""
    if entry.get("at") == "last":
        return None
    if run.metrics.num_rows == 0:  # items alone
        return entry.get("at")
    kept = entry.get("at")
    if kept is None:
        remedy = "for another step, write `at: STEP` in `collect`"
        kept = kept_step(run, lambda line: _say(entry["reader"], f"{run.source}: {line}"), remedy)
    if kept is None or kept >= pc.max(run.metrics["step"]).as_py():
        return None
    _say(
        entry["reader"],
        f"{run.source}: final values are those of the kept model, at step {kept}; for the last step, write `at: last`",
    )
    return int(kept)


def _with_last(items: pa.Table, kept: int | None) -> pa.Table:
    """Return the items, with a further subset `last` for each protocol that has subsets `step N`.

    The subset `last` repeats the last of these up to the step `kept` or, if all are later, the last of all.
    """
    every: dict[str, set[int]] = {}
    for row in items.group_by(["protocol", "subset"]).aggregate([]).to_pylist():
        if match := A_STEP.fullmatch(row["subset"]):
            every.setdefault(row["protocol"], set()).add(int(match[1]))
    until = math.inf if kept is None else kept
    steps = {
        protocol: max({step for step in steps_of if step <= until} or steps_of) for protocol, steps_of in every.items()
    }
    tables = [items]
    for protocol, step in steps.items():
        chosen = pc.and_(pc.equal(items["protocol"], protocol), pc.equal(items["subset"], f"step {step}"))
        copies = items.filter(chosen)
        place = items.schema.get_field_index("subset")
        tables.append(copies.set_column(place, "subset", pa.array(["last"] * copies.num_rows, pa.string())))
    return pa.concat_tables(tables)
