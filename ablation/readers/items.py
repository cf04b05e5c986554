"""Reader of items that any program may write: the columns `item,value`, or `item` and a column for each value.

Further columns are `subset` (default `all`), `protocol` (default `test`), `name` (of the value, default `value`) and
`cluster`. Columns without any number, `seed`, texts (`prompt`, `answer`, ...), class labels (`label`, ...), row numbers
(`id`, ...) and unnamed columns (pandas' index) are not read. Tables with several seeds, for pairing two evaluations,
are read by `ablation.readers.table`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.rows import LONGEST_NAME
from ablation.readers.columns import number
from ablation.readers.run import ITEM_ROWS, ImportedRun, Problem, as_text
from ablation.readers.tabular import NOTHING, file_at, renamed

_WORDS = {"item": None, "subset": "all", "protocol": "test", "name": "value", "cluster": None}
_TEXTS = {"prompt", "question", "text", "response", "reference", "target", "answer"}
_PREDICTED = ("pred", "prediction", "predictions", "predicted", "y_pred")
_CLASSES = {"label", "labels", "class", "gold", "y", "y_true", *_PREDICTED}
_IDS = ("id", "idx", "index", "item_id", "doc_id", "example_id", "sample_id", "question_id", "qid", "uid")
_NOT_VALUES = {*_WORDS, *_TEXTS, *_CLASSES, *_IDS, "seed", "value", ""}
_EACH = "write a number for each item; if the column holds words, rename it to `text`"


def read(
    path: Path, problem: Problem, columns: Mapping[str, str] = NOTHING, values: Sequence[str] = ()
) -> Iterator[ImportedRun]:
    """Yield one run with the evaluation items of a file, or of `items.*` in a folder.

    columns: {usual name: name in the file}, such as {"item": "id"}; values: if given, the only columns with values.

    Raises ConfigError if the file is missing or invalid.
    """
    file = file_at(path, "items")
    item_columns: dict[str, list[Any]] = {name: [] for name in ITEM_ROWS.names}
    rows = list(renamed(file, columns, values))
    numeric = {name for _, row in rows for name in row if number(row[name]) is not None}
    numbers = set(values) or numeric - _NOT_VALUES
    if unread := sorted(numeric & _CLASSES - numbers):
        what = f"columns that may hold class labels are not read ({', '.join(unread)})"
        problem(f"{file}: {what}; to read them, list them in `values`")
    long = not values and any("value" in row for _, row in rows)
    for line, row in rows:
        if row.get("item") in ("", None):
            remedy = "name the item of each row in a column `item`"
            if id_column := next((name for name in _IDS if row.get(name) not in ("", None)), None):
                remedy += f", or name another column: `{{items: {{path: {file.name}, item: {id_column}}}}}`"
            remedy += f"; the columns are {one_line(', '.join(map(str, row)), 200)}"
            raise ConfigError(file, f"line {line}: item", None, "is missing", remedy)
        labels = {
            word: default if row.get(word) in ("", None) else as_text(str(row[word]))
            for word, default in _WORDS.items()
        }
        if longer := next((word for word, text in labels.items() if len(text or "") > LONGEST_NAME), None):
            fault, remedy = f"is longer than {LONGEST_NAME} characters", "use a shorter name, such as a hash"
            raise ConfigError(file, f"line {line}: {longer}", labels[longer], fault, remedy)
        cells = {labels["name"]: row.get("value")} if long else {name: row.get(name) for name in sorted(numbers)}
        if not cells:
            remedy = "add a column `value`, or list the columns to read as `values: [...]`"
            raise ConfigError(file, f"line {line}: value", None, "is missing", remedy)
        for name, cell in cells.items():
            value = number(cell)
            if value is None or not math.isfinite(value):
                fault = "is not a number" if value is None else "is not finite"
                raise ConfigError(file, f"line {line}: {name}", cell, fault, _EACH)
            for column, content in (labels | {"name": as_text(str(name)), "value": value}).items():
                item_columns[column].append(content)
    yield ImportedRun(source=file, id=file.name, name=file.stem, items=pa.table(item_columns, schema=ITEM_ROWS))
