"""Find the columns of a table by their usual names, and read numbers in the notations that people use."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ablation.contract.errors import ConfigError
from ablation.readers.run import as_number

_IDS = ("id", "question_id", "task_id", "instance_id", "doc_id", "qid", "example_id", "problem_id", "uid")
_VERDICTS = ("correct", "is_correct", "passed", "success", "resolved")
ITEM = ("item", "item_id", *_IDS)
VALUE = ("value", "score", *_VERDICTS, "reward", "acc", "accuracy", "exact_match")
"""Usual names of the columns with items and with values; a column with the first name is preferred."""
SAMPLE = ("sample", "epoch", "trial", "attempt", "repeat", "sample_id", "rollout", "k")
"""Usual names of columns that number the answers to one item."""


# Columns of LangSmith's ExperimentResults.to_pandas(), which has a row for each answer. Those of values begin with
# LANGSMITH_VALUES; that of errors is not empty if there was no answer to score.
LANGSMITH_ITEM, LANGSMITH_VALUES, LANGSMITH_SAMPLE, LANGSMITH_ERROR = "example_id", "feedback.", "id", "error"


def is_of_langsmith(head: Iterable[str]) -> bool:
    """Return whether a table has the columns that LangSmith exports."""
    names = set(head)
    columns = {LANGSMITH_ITEM, LANGSMITH_SAMPLE, LANGSMITH_ERROR}
    return columns <= names and any(name.startswith(LANGSMITH_VALUES) for name in names)


_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE)
_COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII)
_MISSING = ("", "na", "n/a", "#n/a", "null", "none")

Notation = Literal["whole", "point", "comma", "grouped", "either", "missing", "word"]
"""Kind of a cell: whole `5`, point `0.5`, comma `0,5`, grouped `1,234,567`, either `1,758`, missing `NA`, word `x`."""


@dataclass(frozen=True)
class _Cell:
    notation: Notation
    value: float = math.nan  # of `either`: with a decimal comma
    percent: bool = False


class NotANumber(ValueError):
    """Raised for a cell that cannot be read as a number; `place` is the index of the cell in its column."""

    def __init__(self, place: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.place, self.problem, self.remedy = place, problem, remedy


def named(path: Path, head: Iterable[str], names: Sequence[str], option: str) -> str | None:
    """Return the column called `names[0]`, else the only column with another of the names; None if no column has one.

    Raises ConfigError if several columns have one of the names, and none is called `names[0]`.
    """
    having = [column for column in head if column.strip().lower() in names]
    exact = [column for column in having if column == names[0]]
    if len(having) > 1 and not exact:
        problem = f"any of the columns {', '.join(having)} may be the {names[0]} column"
        raise ConfigError(path, "", None, problem, f"choose one with {option}, such as {option} {having[0]}")
    return next(iter(exact or having), None)


def number(cell: Any) -> float | None:
    """Return a cell as a number: 1 or 0 for a boolean, and 0.05 for `5%`; None for anything else.

    None also for `1,758`, which may mean 1.758 or 1758; `numbers` decides by the other cells of the column.
    """
    read = _read(cell)
    return None if read.notation in ("either", "missing", "word") else read.value


def numbers(cells: Sequence[Any]) -> list[float]:
    """Return the numbers of a column; NaN for an empty cell, `NA` or `null`.

    Raises NotANumber for a cell that is not a number, is ambiguous like `1,758`, or has another notation than the rest.
    """
    if all(isinstance(cell, str) and _PLAIN.fullmatch(cell) for cell in cells):
        return list(map(float, cells))
    known = {text: _read(text) for text in {cell for cell in cells if isinstance(cell, str)}}
    read = [known[cell] if isinstance(cell, str) else _read(cell) for cell in cells]
    first: dict[Notation, int] = {}
    for place, cell in enumerate(read):
        first.setdefault(cell.notation, place)
    if "word" in first:
        raise NotANumber(first["word"], "is not a number", "write numbers such as 0.5, or 1 and 0 for right and wrong")
    point = next((first[notation] for notation in ("point", "grouped") if notation in first), None)
    if "comma" in first and point is not None:
        problem = "has a decimal point, but other cells have a decimal comma"
        raise NotANumber(point, problem, "write all numbers with a decimal point, such as 0.5")
    if "either" in first and "comma" not in first and point is None:
        text = str(cells[first["either"]])
        meant = f"may mean {text.replace(',', '.')} or {text.replace(',', '')}"
        raise NotANumber(first["either"], meant, "write numbers without commas, such as 0.5")
    unlike = [at for at, cell in enumerate(read) if not cell.percent and abs(cell.value) > 0]  # 0 is 0%
    if unlike and any(cell.percent for cell in read):
        problem = "has no % sign, but other cells have one"
        raise NotANumber(unlike[0], problem, "add the % sign to all cells of the column, or to none")
    grouped = point is not None
    return [1000 * cell.value if grouped and cell.notation == "either" else cell.value for cell in read]


def _read(cell: Any) -> _Cell:
    if not isinstance(cell, str):
        value = as_number(cell)
        return _Cell("whole", value) if value is not None else _Cell("missing" if cell is None else "word")
    text = cell.strip()
    percent = text.endswith("%")
    text = text.removesuffix("%").rstrip()
    if _PLAIN.fullmatch(text):
        return _Cell("point" if "." in text else "whole", float(text) / (100 if percent else 1), percent)
    if not percent and text.lower() in ("true", "false"):
        return _Cell("whole", float(text.lower() == "true"))
    if text.lower() in _MISSING:
        return _Cell("word" if percent else "missing")
    grouped, comma = _GROUPED.fullmatch(text), _COMMA.fullmatch(text)
    if not grouped and not comma:
        return _Cell("word")
    plain = text.replace(".", "").replace(",", ".") if comma else text.replace(",", "")
    notation: Notation = "either" if grouped and comma else "comma" if comma else "grouped"
    return _Cell(notation, float(plain) / (100 if percent else 1), percent)
