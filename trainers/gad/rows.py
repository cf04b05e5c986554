"""Prompts with teacher responses: read from Parquet or JSON lines, checked, and split."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from trainers.tasks.interface import Problem, bucket

FIELDS = ("content", "teacher_response")
Text = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]  # that is not blank


class Message(BaseModel):
    """One message of a chat; further fields of a file are ignored."""

    role: Literal["system", "user", "assistant"]
    content: Text


class TeacherRow(BaseModel):
    """A row as files have it; further fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    content: list[Message] = Field(min_length=1)
    teacher_response: Text


def read_teacher_rows(path: Path) -> tuple[list[Problem], int]:
    """Return the rows of a .parquet, .jsonl or .json (lines) file, and the number of duplicates left out.

    Rows of one chat count once, the first stays, whatever the teacher answered in the others.

    Raises ValueError, with the file, the row's number from 1, field and reason, for the first row that cannot be used.
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
    """Return disjoint train, dev and test rows in an order that `seed` sets; train None: all that are left.

    dev, test: numbers of rows; below 1: shares of the rows that they are taken from, rounded, at least one.
    validation: the rows that dev and test are taken from; None: `rows`. A chat of both is not trained on.
    Raises ValueError if there are too few.
    """

    def ordered(some: Sequence[Problem]) -> list[Problem]:
        return sorted(some, key=lambda row: bucket(f"{seed} {row.id}", 2**60))

    held_out = ordered(rows if validation is None else validation)
    n_test, n_dev = (max(1, round(size * len(held_out))) if size < 1 else int(size) for size in (test, dev))
    splits = {"test": held_out[:n_test], "dev": held_out[n_test : n_test + n_dev]}
    taken = {row.id for split in splits.values() for row in split}
    rest = [row for row in ordered(rows) if row.id not in taken]
    if len(taken) < n_test + n_dev or len(rest) < (1 if train is None else train):
        others = "" if validation is None else f" and {len(held_out)} to validate on"
        raise ValueError(
            f"data: {n_dev} rows are requested for dev, {n_test} for test and {train or 'at least 1'} for "
            f"train, but there are {len(rows)} different rows{others}; lower data.train, data.dev or "
            "data.test"
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
                    raise ValueError(f"{path}: row {number} is not JSON ({error})") from None


def _row(raw: Any) -> Problem:
    try:
        row = TeacherRow.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the row"
        if first["type"] == "missing":
            raise ValueError(f"the field {where} is missing; add it to the row") from None
        raise ValueError(f"{where}: {first['msg']}, not {first['input']!r:.200}") from None
    messages = [message.model_dump() for message in row.content]
    *earlier, last = messages
    if last["role"] != "user":
        raise ValueError(f"content ends with the role {last['role']!r}, but the last message must be the user's")
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return Problem(f"row-{bucket(text, 16**12):012x}", last["content"], row.teacher_response, earlier=earlier)
