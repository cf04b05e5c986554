"""Prompts with teacher responses: reading them from Parquet or JSON lines, checking and splitting them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from trainers.tasks.interface import Problem, bucket

FIELDS = ("content", "teacher_response")
Text = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]  # not blank


class Message(BaseModel):
    """One message of a chat; additional fields are ignored."""

    role: Literal["system", "user", "assistant"]
    content: Text


class TeacherRow(BaseModel):
    """One row of a file; additional fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    content: list[Message] = Field(min_length=1)
    teacher_response: Text


def read_teacher_rows(path: Path) -> tuple[list[Problem], int]:
    """Return the rows of a Parquet or JSON-lines file, and the number of rows that are left out as duplicates.

    Only the first of several rows with the same chat is kept. Raises ValueError, with the number of the first wrong row
    (counted from 1) and its problem, or if there are no rows.
    """
    rows: dict[str, Problem] = {}
    read = 0
    for number, raw in enumerate(_raw_rows(path), 1):
        try:
            row = _row(raw)
        except ValueError as error:
            raise ValueError(f"{path}: row {number}: {error}") from None
        rows.setdefault(row.id, row)
        read += 1
    if not rows:
        raise ValueError(f"{path}: the file has no rows; write rows with {' and '.join(FIELDS)}")
    return list(rows.values()), read - len(rows)


def split_rows(
    rows: Sequence[Problem],
    *,
    train: int | None,
    dev: int | float,
    test: int | float,
    seed: int,
    validation: Sequence[Problem] | None = None,
) -> dict[str, list[Problem]]:
    """Return the rows of the splits train, dev and test, in an order set by `seed`; no chat is in two splits.

    train: number of rows; None: all that are left. dev, test: numbers of rows, or shares below 1 (at least one row).
    validation: rows from which dev and test are taken; None: `rows`. Raises ValueError if there are too few rows.
    """

    def ordered(unordered: Sequence[Problem]) -> list[Problem]:
        return sorted(unordered, key=lambda row: bucket(f"{seed} {row.id}", 2**60))

    held_out = ordered(rows if validation is None else validation)
    n_test, n_dev = (max(1, round(size * len(held_out))) if size < 1 else int(size) for size in (test, dev))
    splits = {"test": held_out[:n_test], "dev": held_out[n_test : n_test + n_dev]}
    taken = {row.id for split in splits.values() for row in split}
    rest = [row for row in ordered(rows) if row.id not in taken]
    if len(taken) < n_test + n_dev or len(rest) < (1 if train is None else train):
        others = "" if validation is None else f" in data_source and {len(held_out)} in validation_source"
        raise ValueError(
            f"data: there are too few different rows ({len(rows)}{others}): train needs {train or 'at least 1'}, dev "
            f"{n_dev} and test {n_test}; lower data.train, data.dev or data.test"
        )
    return {**splits, "train": rest if train is None else rest[:train]}


def _raw_rows(path: Path) -> Iterator[Any]:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        if missing := [field for field in FIELDS if field not in file.schema_arrow.names]:
            names = ", ".join(file.schema_arrow.names)
            raise ValueError(f"{path}: the column {missing[0]} is missing (the file has {names}); add or rename it")
        for batch in file.iter_batches(columns=list(FIELDS)):
            yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}: row {number} is not JSON ({error}); correct it") from None


def _row(raw: Any) -> Problem:
    try:
        row = TeacherRow.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the row"
        if first["type"] == "missing":
            raise ValueError(f"the field {field} is missing; add it to the row") from None
        raise ValueError(f"{field} is {first['input']!r:.200} ({first['msg']}); correct it") from None
    messages = [message.model_dump() for message in row.content]
    *earlier, last = messages
    if last["role"] != "user":
        raise ValueError(f"the last message of `content` has the role {last['role']!r}; end with the role 'user'")
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return Problem(f"row-{bucket(text, 16**12):012x}", last["content"], row.teacher_response, earlier=earlier)
