"""Reader of CSV files that W&B exports: the history of a run, the lines of a chart, or a table of runs.

A history is what `run.history().to_csv()` writes: a column `_step`, and one for each metric. A chart is what W&B's page
exports: a column `Step`, and for each run `<run> - <metric>`, perhaps with `__MIN` and `__MAX`, or only `<metric>` if
there is one run. A table of runs is what the API exports in W&B's documentation: columns `name`, `config` and
`summary`, or columns `config.<key>` and `summary.<key>`. The table that the page exports is refused, because it does
not distinguish settings from results. The content for runs of the same name in several files of a folder is joined.
"""

import ast
import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.reading import regular
from ablation.readers.columns import number
from ablation.readers.run import ImportedRun, Problem, State, as_number, metric_table, name_below, shortened
from ablation.readers.tabular import Row, csv_rows, points, whole
from ablation.readers.wandb_log import OWN

_CHART_ENDS = ("__MIN", "__MAX")
_SEPARATOR = " - "  # of run and metric in the columns of a chart
_STEPS = ("step", "global_step", "trainer/global_step")
_STATES: dict[str, State] = {"finished": "finished", "running": "running"}
_NAMED = {"null": None, "true": True, "false": False, "inf": math.inf, "Infinity": math.inf}
_NAMED |= dict.fromkeys(("nan", "NaN"), math.nan)
_REMEDY = (
    "export a run's history, a chart over Step, or a table of runs with the columns name, config and summary "
    "(docs/how-to/import.md)"
)


def read_csvs(root: Path, files: Sequence[Path], problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of the exports in a folder. Raises ConfigError if no file is an export of W&B."""
    runs: dict[tuple[str, int], ImportedRun] = {}  # by name, and place among the runs of this name in one file
    for file in files:
        seen: Counter[str] = Counter()
        try:
            for run in read_csv(file, problem, name_below(root, file.with_suffix(""))):
                key = run.name, seen[run.name]
                seen[run.name] += 1
                runs[key] = _joined(runs[key], run) if key in runs else run
        except (ConfigError, OSError) as error:
            where = "" if isinstance(error, ConfigError) else f"{file}: "
            problem(f"{where}{error}; the file is left out")
    if not runs:
        raise ConfigError(root, "", None, "holds no CSV file exported by W&B", _REMEDY)
    yield from runs.values()


def _joined(first: ImportedRun, second: ImportedRun) -> ImportedRun:
    logged = {"metrics": pa.concat_tables([first.metrics, second.metrics]), "config": first.config | second.config}
    return replace(first, state=first.state if first.state != "finished" else second.state, **logged)


def read_csv(path: Path, problem: Problem, name: str = "") -> Iterator[ImportedRun]:
    """Yield the runs of an exported CSV file; a run that the file does not name is called `name`.

    Raises ConfigError if it is not an export of W&B, and OSError if it cannot be read.
    """
    name = name or path.stem
    with regular(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            header = next(csv.reader(file), [])
        except csv.Error as error:
            raise ConfigError(path, "", None, f"is not a CSV file ({error})", _REMEDY) from None
    rows = _rows(path, problem)
    of_page = {"Name", "State"} <= set(header)  # whose columns may include `_step`
    if "_step" in header and not of_page:
        metrics = [each for each in header if each and each not in OWN and not each.startswith("Unnamed: ")]
        wide = _wide(path, rows, "_step", {each: each for each in metrics}, problem)
        yield ImportedRun(source=path, id=name, name=name, metrics=wide)
    elif any(each.endswith(_CHART_ENDS) and each[:-5] in header for each in header) or (
        len(header) > 1 and header[0].strip().lower() in _STEPS
    ):
        yield from _chart(path, header, list(rows), problem, name)
    elif {"config", "summary"} <= set(header) or any(_kind(name) for name in header):
        yield from _table(path, header, rows, problem)
    elif of_page:
        what = "does not state which columns hold the configuration and which hold results"
        remedy = "read it with `ablation import table`, or begin the names of the columns with `config.` and `summary.`"
        raise ConfigError(path, "", None, what, remedy)
    else:
        raise ConfigError(path, "", None, "is not a CSV file exported by W&B", _REMEDY)


def _rows(path: Path, problem: Problem) -> Iterator[Row]:
    """Yield the complete rows of a CSV file, without their empty cells."""
    torn: list[int] = []
    for line, row in csv_rows(path, torn.append):
        yield line, {name: cell for name, cell in row.items() if name and cell != ""}
    if torn:
        what = "lines with more or fewer cells than the heading"
        problem(f"{path}: {what} are left out ({len(torn)}; the first is line {torn[0]})")


def _wide(path: Path, rows: Iterable[Row], step: str, names: Mapping[str, str], problem: Problem) -> pa.Table:
    without, others = [], dict[str, None]()

    def refuse(line: int, column: str, cell: Any) -> None:
        if column == step:
            without.append(line)
        else:
            others[column] = None

    metrics = metric_table(points(rows, step, names, refuse))
    if without:
        problem(f"{path}: rows without a whole number in the column {one_line(step, 80)} are left out ({len(without)})")
    if others:
        problem(f"{path}: cells that are not numbers are left out (columns: {shortened(list(others))})")
    return metrics


def _chart(
    path: Path, header: Sequence[str], rows: Sequence[Row], problem: Problem, name: str
) -> Iterator[ImportedRun]:
    step = header[0]
    ends = (*_CHART_ENDS, f"{_SEPARATOR}_step")
    shown = [each for each in header[1:] if each and each not in OWN and not each.endswith(ends)]
    if rows and all(whole(row.get(step)) is None for _, row in rows):
        remedy = "choose Step as the x-axis of the chart, and export it again"
        raise ConfigError(path, step, None, "holds no whole numbers that could be steps", remedy)
    runs: dict[str, dict[str, str]] = {}
    for column in shown:
        run, separator, metric = column.rpartition(_SEPARATOR)
        runs.setdefault(run if separator else "", {})[column] = metric if separator else column
    for run, names in runs.items():
        run_rows = [(line, row) for line, row in rows if names.keys() & row.keys()]
        yield ImportedRun(
            source=path, id=run or name, name=run or name, metrics=_wide(path, run_rows, step, names, problem)
        )


def _table(path: Path, header: Sequence[str], rows: Iterable[Row], problem: Problem) -> Iterator[ImportedRun]:
    lower = {name.lower(): name for name in header}
    name_column, key_column = lower.get("name", ""), lower.get("id", "")
    if not name_column and not key_column:
        raise ConfigError(path, "", None, "has no column `name` or `id`", "also export the names of the runs")
    seen: Counter[str] = Counter()
    for _, row in rows:
        key = row.get(key_column) or row.get(name_column) or ""
        if not key:
            problem(f"{path}: a run that has neither a name nor an id is left out")
            continue
        seen[key] += 1
        if seen[key] > 1:
            if row.get(key_column):
                problem(f"{path}: the id {one_line(key, 80)} occurs twice; only its first row is read")
                continue
            what = f"{seen[key]} runs have the name {one_line(key, 80)}, so they are numbered in row order"
            problem(f"{path}: {what}")
            key = f"{key}#{seen[key]}"
        config, summary = _content(path, row, problem)
        step = whole(summary.get("_step", 0)) or 0
        numbers = {name: as_number(value) for name, value in _flat("", summary) if name not in OWN}
        yield ImportedRun(
            source=path,
            id=key,
            name=row.get(name_column) or key,
            config=config,
            state=_STATES.get(row.get(lower.get("state", ""), "finished"), "failed"),
            metrics=metric_table((step, name, value) for name, value in numbers.items() if value is not None),
        )


def _kind(column: str) -> str:
    return next((kind for kind in ("config", "summary") if column.startswith(f"{kind}.")), "")


def _content(path: Path, row: Mapping[str, str], problem: Problem) -> tuple[dict[str, Any], dict[str, Any]]:
    by_kind: dict[str, dict[str, Any]] = {"config": {}, "summary": {}}
    for column, cell in row.items():
        kind = _kind(column)
        if column in by_kind:
            content = _literal(cell)
            if isinstance(content, dict):
                by_kind[column] |= {str(key): value for key, value in content.items()}
            else:
                problem(f"{path}: a cell in column {column} is not a mapping, so it is left out: {one_line(cell, 60)}")
        elif kind:
            by_kind[kind][column.removeprefix(f"{kind}.")] = _plain(cell)
    config = {key: value for key, value in by_kind["config"].items() if not key.startswith("_")}
    return json.loads(json.dumps(config, default=str), parse_constant=str), by_kind["summary"]


def _plain(cell: str) -> Any:
    if cell.strip().lower() in ("true", "false"):
        return cell.strip().lower() == "true"
    value = number(cell)
    return cell if value is None else int(cell) if cell.strip().lstrip("+-").isdigit() and len(cell) < 20 else value


class _Names(ast.NodeTransformer):
    """Replaces names in a literal, such as `nan`, `inf` and JSON's `null` and `true`, with their values."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_NAMED.get(node.id, node.id))


def _literal(cell: str) -> Any:
    """Return the value of a cell that holds JSON or a literal of Python; None if it holds neither."""
    try:
        return ast.literal_eval(_Names().visit(ast.parse(cell.strip(), mode="eval")))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _flat(above: str, content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) from nested maps, without maps that describe a table or media."""
    if "_type" not in content:
        for key, value in content.items():
            if isinstance(value, dict):
                yield from _flat(f"{above}{key}.", value)
            else:
                yield f"{above}{key}", value
