"""Prompts with teacher responses: read from Parquet or JSON lines, checked, split, and kept as JSON lines."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from trainers.tasks.interface import Problem, bucket

ROLES = ("system", "user", "assistant")
FIELDS = ("content", "teacher_response")


@dataclass(frozen=True)
class Row:
    """One prompt, a chat whose last message the student answers, and how the teacher answered it."""

    id: str
    content: list[dict[str, str]]
    teacher_response: str

    @classmethod
    def of_problem(cls, problem: Problem) -> "Row":
        """Return the row of a generated problem, whose expected answer is the teacher's whole response."""
        return cls(problem.id, [{"role": "user", "content": problem.prompt}], problem.answer)

    def problem(self) -> Problem:
        """Return the problem that a generated row came from."""
        return Problem(self.id, self.content[-1]["content"], self.teacher_response)


def read_teacher_rows(path: Path) -> list[Row]:
    """Return the rows of a .parquet, .jsonl or .json (lines) file; rows of one chat count once, the first stays.

    Raises ValueError, with the file, the row's number from 1 and the reason, for the first row that cannot be used.
    """
    rows: dict[str, Row] = {}
    for number, raw in enumerate(_raw_rows(path), 1):
        try:
            row = _row(raw)
        except ValueError as error:
            raise ValueError(f"{path}: row {number}: {error}") from None
        rows.setdefault(row.id, row)
    if not rows:
        raise ValueError(f"{path}: it has no rows; expected {' and '.join(FIELDS)}")
    return list(rows.values())


def split_rows(rows: Sequence[Row], *, train: int | None, dev: int, test: int, seed: int) -> dict[str, list[Row]]:
    """Return disjoint train, dev and test rows in an order that `seed` sets; train None: all that are left.

    Raises ValueError where there are too few.
    """
    order = sorted(rows, key=lambda row: bucket(f"{seed} {row.id}", 2**60))
    needed = dev + test + (1 if train is None else train)
    if len(order) < needed:
        raise ValueError(
            f"data: {needed} different rows are asked for (train {train or 'at least 1'}, dev {dev}, test {test}), "
            f"there are {len(order)}; lower data.train, data.dev or data.test"
        )
    rest = order[test + dev :]
    return {"test": order[:test], "dev": order[test : test + dev], "train": rest if train is None else rest[:train]}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write one JSON object per line."""
    path.write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """Read what `write_rows` wrote."""
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _raw_rows(path: Path) -> Iterator[Any]:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        if missing := [field for field in FIELDS if field not in file.schema_arrow.names]:
            raise ValueError(f"{path}: row 1: no field {missing[0]!r}; it has {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(columns=list(FIELDS)):
            yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}: row {number}: not JSON ({error})") from None


def _row(raw: Any) -> Row:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{raw!r} is not an object with {' and '.join(FIELDS)}")
    content, response = raw.get("content"), raw.get("teacher_response")
    if response is None or (isinstance(response, float) and math.isnan(response)):
        raise ValueError("no `teacher_response`: every row needs what the teacher answered")
    if not isinstance(response, str) or not response.strip():
        raise ValueError(f"teacher_response = {response!r}: must be text that is not empty")
    if not isinstance(content, list) or not content:
        raise ValueError(f"content = {content!r}: must be a list of messages {{role, content}}")
    messages = [_message(message) for message in content]
    if messages[-1]["role"] != "user":
        raise ValueError(f"content ends with the role {messages[-1]['role']!r}: the last message must be the user's")
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return Row(f"row-{bucket(text, 16**12):012x}", messages, response)


def _message(message: Any) -> dict[str, str]:
    role = message.get("role") if isinstance(message, Mapping) else None
    text = message.get("content") if isinstance(message, Mapping) else None
    if role not in ROLES or not isinstance(text, str) or not text.strip():
        raise ValueError(f"content has {message!r}: a message has a role ({', '.join(ROLES)}) and text as content")
    return {"role": role, "content": text}
