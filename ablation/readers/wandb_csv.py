"""CSV that W&B exports: the history of a run, the lines of a chart, or a table of runs.

A history is what `run.history().to_csv()` writes: a column `_step`, and one per metric. A chart is what the page
exports: `Step`, and for each run `<run> - <metric>` with `__MIN` and `__MAX`; of one run the metric alone. A table of
runs is what W&B's documentation exports with its API: columns `name`, `config` and `summary`; or one with a column
`config.<key>` or `summary.<key>` each. The table of the page shows both kinds without saying which is which.
"""

import ast
import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line, regular
from ablation.readers.run import ImportedRun, Problem, State, as_number, metric_table, shortened
from ablation.readers.wandb_log import OWN

_MAX_CELL = 1 << 24
_CHART_ENDS = ("__MIN", "__MAX")
_SEPARATOR = " - "  # of run and metric in the columns of a chart
_STATES: dict[str, State] = {"finished": "finished", "running": "running"}
_NAMED = {
    "nan": math.nan,
    "NaN": math.nan,
    "inf": math.inf,
    "Infinity": math.inf,
    "null": None,
    "true": True,
    "false": False,
}
_REMEDY = "export a run's history, a chart over Step, or runs with columns name, config and summary (docs/import.md)"


def read_csv(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of an exported CSV.

    Raises:
        ConfigError: it is none of those above.
        OSError: it cannot be read.
    """
    csv.field_size_limit(_MAX_CELL)
    with regular(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            header = next(csv.reader(file), [])
        except csv.Error as error:
            raise ConfigError(path, "", None, f"is no CSV: {error}", _REMEDY) from None
        names = [name for name in header if name]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(path, twice[0], None, "is the name of two columns", "rename one of them")
        rows = _rows(path, file, header, problem)
        if "_step" in header:
            yield _history(path, header, rows, problem)
        elif header and _is_chart(header):
            yield from _chart(path, header, rows, problem)
        elif {"config", "summary"} <= set(header) or any(_kind(name) for name in header):
            yield from _table(path, header, rows, problem)
        elif {"Name", "State"} <= set(header):
            what = "does not say which columns are the configuration and which are results"
            remedy = "begin the name of each such column with `config.` or `summary.`, or export as docs/import.md says"
            raise ConfigError(path, "", None, what, remedy)
        else:
            raise ConfigError(path, "", None, "is no CSV that W&B exports", _REMEDY)


def _rows(path: Path, file: TextIO, header: Sequence[str], problem: Problem) -> Iterator[dict[str, str]]:
    """Yield the rows that are whole: {column: text}, without empty cells."""
    damaged, first = 0, 0
    reader = csv.reader(iter(partial(file.readline, 1 << 26), ""))
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error:
            cells = ["", *header]
        if len(cells) == len(header):
            yield {name: cell for name, cell in zip(header, cells, strict=True) if name and cell != ""}
        elif cells:
            damaged, first = damaged + 1, first or reader.line_num + 1
    if damaged:
        problem(f"{path}: lines with more or fewer cells than the first are left out: {damaged}, first line {first}")


def _history(path: Path, header: Sequence[str], rows: Iterator[dict[str, str]], problem: Problem) -> ImportedRun:
    metrics = [name for name in header if name and name not in OWN and not name.startswith("Unnamed: ")]
    return _run(path, path.stem, metric_table(_cells(path, "_step", {name: name for name in metrics}, rows, problem)))


def _cells(
    path: Path, step: str, metrics: Mapping[str, str], rows: Iterator[dict[str, str]], problem: Problem
) -> Iterator[tuple[int, str, float]]:
    """Yield (step, name, value) of the columns {column: name}."""
    others: dict[str, None] = {}
    without = 0
    for row in rows:
        where = _whole(row.get(step, ""))
        if where is None:
            without += 1
            continue
        for column, name in metrics.items():
            if column in row:
                number = _number(row[column])
                if number is None:
                    others.setdefault(column)
                else:
                    yield where, name, number
    if without:
        problem(f"{path}: rows without a whole number in the column {one_line(step, 80)} are left out: {without}")
    if others:
        problem(f"{path}: cells that are no numbers are left out, in the columns {shortened(list(others))}")


def _is_chart(header: Sequence[str]) -> bool:
    return any(name.endswith(_CHART_ENDS) and name[:-5] in header for name in header)


def _chart(
    path: Path, header: Sequence[str], rows: Iterator[dict[str, str]], problem: Problem
) -> Iterator[ImportedRun]:
    found = list(rows)
    shown = [name for name in header[1:] if not name.endswith(_CHART_ENDS) and not name.endswith(f"{_SEPARATOR}_step")]
    steps = [_whole(row.get(header[0], "")) for row in found]
    if found and not any(step is not None for step in steps):
        remedy = "choose Step for the axis of the chart and export it again"
        raise ConfigError(path, header[0], None, "holds no whole numbers to count steps by", remedy)
    runs: dict[str, dict[str, str]] = {}
    for column in shown:
        run, separator, metric = column.rpartition(_SEPARATOR)
        runs.setdefault(run if separator else path.stem, {})[column] = metric if separator else column
    for run, metrics in runs.items():
        own = [row for row in found if metrics.keys() & row.keys()]
        yield _run(path, run, metric_table(_cells(path, header[0], metrics, iter(own), problem)))


def _table(
    path: Path, header: Sequence[str], rows: Iterator[dict[str, str]], problem: Problem
) -> Iterator[ImportedRun]:
    lower = {name.lower(): name for name in header}
    name_column, key_column = lower.get("name"), lower.get("id")
    if name_column is None and key_column is None:
        raise ConfigError(path, "", None, "has no column name or id", "export the names of the runs with them")
    seen: dict[str, int] = {}
    for row in rows:
        key = row.get(key_column or "", "") or row.get(name_column or "", "")
        if not key:
            problem(f"{path}: a run without name and id is left out")
            continue
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            if key_column and row.get(key_column):
                problem(f"{path}: the id {one_line(key, 80)} is there twice; only its first row is read")
                continue
            problem(f"{path}: {seen[key]} runs are called {one_line(key, 80)}; they are told apart by their order")
            key = f"{key}#{seen[key]}"
        config, summary = _content(path, row, problem)
        numbers = {name: number for name, value in _flat("", summary) if (number := as_number(value)) is not None}
        step = _whole(str(summary.get("_step", 0))) or 0
        logged = [(step, name, number) for name, number in numbers.items() if name not in OWN]
        state = _STATES.get(row.get(lower.get("state", ""), "finished"), "failed")
        metrics = metric_table(logged)
        yield _run(path, key, metrics, name=row.get(name_column or "", key), config=config, state=state)


def _run(
    path: Path,
    key: str,
    metrics: pa.Table,
    *,
    name: str = "",
    config: Mapping[str, Any] | None = None,
    state: State = "finished",
) -> ImportedRun:
    return ImportedRun(
        source=path,
        id=key,
        name=name or key,
        config=dict(config or {}),
        state=state,
        metrics=metrics,
    )


def _kind(column: str) -> str:
    return next((kind for kind in ("config", "summary") if column.startswith(f"{kind}.")), "")


def _content(path: Path, row: Mapping[str, str], problem: Problem) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (configuration, summary) of a row of a table of runs."""
    found: dict[str, dict[str, Any]] = {"config": {}, "summary": {}}
    for column, cell in row.items():
        kind = _kind(column)
        if column in found:
            content = _literal(cell)
            if isinstance(content, dict):
                found[column] |= {str(key): value for key, value in content.items()}
            else:
                problem(f"{path}: a cell of the column {column} is no map, so it is left out: {one_line(cell, 60)}")
        elif kind:
            found[kind][column.removeprefix(f"{kind}.")] = _plain(cell)
    config = {key: value for key, value in found["config"].items() if not key.startswith("_")}
    return json.loads(json.dumps(config, default=str), parse_constant=str), found["summary"]


def _plain(cell: str) -> Any:
    number = _number(cell)
    if number is not None and cell.strip().lower() not in ("true", "false"):
        return int(cell) if cell.strip().lstrip("+-").isdigit() and len(cell) < 20 else number
    return {"true": True, "false": False}.get(cell.strip().lower(), cell)


class _Names(ast.NodeTransformer):
    """Lets `nan`, `inf` and JSON's words stand in a literal."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a name that stands for a value."""
        return ast.Constant(_NAMED.get(node.id, node.id))


def _literal(cell: str) -> Any:
    """Return what a cell holds: JSON, or what Python prints of a dict, lists and numbers. None where it is neither."""
    try:
        return ast.literal_eval(_Names().visit(ast.parse(cell.strip(), mode="eval")))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _flat(above: str, content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of nested maps; maps that describe a table or media are none."""
    if "_type" not in content:
        for key, value in content.items():
            if isinstance(value, dict):
                yield from _flat(f"{above}{key}.", value)
            else:
                yield f"{above}{key}", value


def _number(cell: str) -> float | None:
    word = cell.strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    try:
        return float(word) if "_" not in word else None
    except ValueError:
        return None


def _whole(cell: str) -> int | None:
    number = _number(cell)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else None
