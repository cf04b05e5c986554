"""`items`, which any program can write: `item,value`, or instead of `value` a column of numbers for each name.

Further columns: `subset` (else `all`), `protocol` (else `test`), `name` (else `value`) and `cluster`. Not read are
columns without any number, `seed`, words (`prompt`, `answer`, ...), and a column without a name: pandas writes its
index as one. Tables of several seeds, whose items two evaluations pair, are read by `ablation.readers.table`.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line
from ablation.contract.rows import LONGEST_NAME
from ablation.readers.run import ITEM_ROWS, ImportedRun, Problem, as_text
from ablation.readers.tabular import file_at, number, rows_of

_WORDS = {"item": None, "subset": "all", "protocol": "test", "name": "value", "cluster": None}
_TEXTS = {"prompt", "question", "text", "response", "reference", "target", "answer"}
_NOT_VALUES = {*_WORDS, *_TEXTS, "seed", "value", ""}
_EACH = "write a number for each item; a column of words may be called `text`"


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the run whose evaluation items a file holds, or `items.*` in a folder. Raises ConfigError."""
    file = file_at(path, "items")
    found: dict[str, list[Any]] = {name: [] for name in ITEM_ROWS.names}
    rows = list(rows_of(file))
    numbers = {name for _, row in rows for name in row.keys() - _NOT_VALUES if number(row[name]) is not None}
    long = any("value" in row for _, row in rows)
    for line, row in rows:
        if row.get("item") in ("", None):
            remedy = f"name the item of each row; the columns are {one_line(', '.join(map(str, row)), 200)}"
            raise ConfigError(file, f"line {line}: item", None, "is missing", remedy)
        words = {
            word: default if row.get(word) in ("", None) else as_text(str(row[word]))
            for word, default in _WORDS.items()
        }
        if longer := next((word for word, text in words.items() if len(text or "") > LONGEST_NAME), None):
            said = f"is longer than {LONGEST_NAME} characters"
            raise ConfigError(file, f"line {line}: {longer}", words[longer], said, "use a number or a digest")
        values = {words["name"]: row.get("value")} if long else {name: row.get(name) for name in sorted(numbers)}
        if not values:
            remedy = "add a column `value`, or one for each name"
            raise ConfigError(file, f"line {line}: value", None, "is missing", remedy)
        for name, cell in values.items():
            value = number(cell)
            if value is None or not math.isfinite(value):
                said = "is not a number" if value is None else "cannot be compared with anything"
                raise ConfigError(file, f"line {line}: {name}", cell, said, _EACH)
            for column, content in (words | {"name": as_text(str(name)), "value": value}).items():
                found[column].append(content)
    yield ImportedRun(source=file, id=file.name, name=file.stem, items=pa.table(found, schema=ITEM_ROWS))
