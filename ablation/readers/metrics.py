"""Reader of metrics that any program may write: the columns `step,name,value`, or `step` and one for each metric.

Empty cells and nulls are skipped. A table without steps has one value of each metric, at step 0.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.readers.columns import number
from ablation.readers.run import ImportedRun, Problem, as_text, metric_table
from ablation.readers.tabular import NOTHING, file_at, points, renamed

_A_STEP = re.compile(r"epoch|iteration|iter|step|.*_step", re.IGNORECASE)
_REMEDY = "write a whole number as the step of each row"


def read(
    path: Path, problem: Problem, columns: Mapping[str, str] = NOTHING, values: Sequence[str] = ()
) -> Iterator[ImportedRun]:
    """Yield one run with the metrics of a file, or of `metrics.*` in a folder.

    columns: {usual name: name in the file}, such as {"step": "iteration"}; values: if given, the only metrics.

    Raises ConfigError if the file is missing or invalid.
    """
    file = file_at(path, "metrics")

    def refuse(names: Mapping[str, str], line: int, column: str, cell: Any) -> None:
        if column == "step":
            raise ConfigError(file, f"line {line}: step", cell, "is not a whole number of at most 64 bits", _REMEDY)
        remedy = "write a number, or leave the cell empty"
        raise ConfigError(file, f"line {line}: {as_text(names[column])}", cell, "is not a number", remedy)

    rows = list(renamed(file, columns, values))
    if stepless := not any("step" in row for _, row in rows):
        column = next((name for _, row in rows for name in row if _A_STEP.fullmatch(name)), None)
        if column is not None and not values:
            shown = as_text(column)
            remedy = f"if {shown} is the step, write `metrics: {{path: {file.name}, step: {shown}}}`"
            raise ConfigError(file, "step", None, "is missing", remedy)
        rows = [(line, {"step": 0} | row) for line, row in rows]
    numbers = {name for _, row in rows for name, cell in row.items() if number(cell) is not None} - {"step", ""}
    unread = sorted({as_text(name) for _, row in rows for name in row} - numbers - {"step", "name", "value", ""})
    if unread and not values:
        problem(f"{file}: columns without numbers are not read: {', '.join(unread)}")
    wide = {name: name for name in values or numbers}
    logged: list[tuple[int, str, float]] = []
    for line, row in rows:
        names = {"value": str(row["name"])} if "name" in row and "value" in row and not values else wide
        logged += points([(line, row)], "step", names, partial(refuse, names))
    if stepless and len({name for _, name, _ in logged}) < len(logged):
        raise ConfigError(file, "step", None, "is missing, but a metric has several values", _REMEDY)
    for (step, name), given in Counter((step, name) for step, name, _ in logged).items():
        if given > 1:
            what = f"{as_text(name)} has {given} values at step {step}, and perhaps several at other steps"
            problem(f"{file}: {what}; the last value of each step is used")
            break
    yield ImportedRun(source=file, id=file.name, name=file.stem, metrics=metric_table(logged))
