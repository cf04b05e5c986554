"""Offline data: scored candidate sequences as Parquet, one row per (query, sequence), and legacy JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from trainers.atomic import replacing

FILE = "candidates.parquet"
SCORES = ("correct", "acc_score", "info_score", "beam_logprob")
SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("pointer", pa.list_(pa.int64())),
        *((name, pa.float64()) for name in SCORES),
        ("method", pa.string()),
    ]
)
_LEGACY = {  # names of the source's JSON
    "correct": "vqa_correct",
    "acc_score": "vqa_acc_score",
    "info_score": "beam_score",
    "beam_logprob": "logprob_score",
    "method": "gen_method",
}


@dataclass(frozen=True)
class OfflineData:
    """Sequences of Q queries, N of each, all of length S."""

    queries: list[str]
    pointers: Tensor  # (Q, N, S) int64
    correct: Tensor  # (Q, N) float32, NaN where missing; so the others
    acc_score: Tensor
    info_score: Tensor
    beam_logprob: Tensor


def write_candidates(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows with the columns of SCHEMA; None is a missing score."""
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def read_candidates(path: Path, pool_size: int, shots: int) -> OfflineData:
    """Read and check scored sequences.

    Args:
        path: a Parquet file with the columns of SCHEMA.
        pool_size: candidates per query, K: pointers are 0 to K - 1.
        shots: length of a sequence, S.

    Raises:
        ValueError: a column is missing, a pointer is outside the pool, repeated or not of length S, or the queries have
            different numbers of sequences; with file and row.
    """
    table = pq.read_table(path)
    if absent := [name for name in SCHEMA.names if name not in table.column_names]:
        raise ValueError(f"{path}: no column {', '.join(absent)}; the columns are {', '.join(SCHEMA.names)}")
    pointers = table["pointer"].to_pylist()
    for row, pointer in enumerate(pointers):
        check_pointer(pointer, pool_size, shots, f"{path}, row {row}")
    order: dict[str, list[int]] = {}
    for row, query in enumerate(table["query"].to_pylist()):
        order.setdefault(query, []).append(row)
    counts = {query: len(rows) for query, rows in order.items()}
    if not counts or len(set(counts.values())) != 1 or min(counts.values()) < 2:
        few = min(counts, key=lambda query: counts[query], default="none")
        raise ValueError(
            f"{path}: every query needs the same number of sequences, at least 2; {few} has {counts.get(few, 0)}, "
            f"others up to {max(counts.values(), default=0)}: drop or add rows"
        )
    places = torch.tensor(list(order.values()))
    scores = {name: torch.tensor(table[name].to_numpy(zero_copy_only=False)).float()[places] for name in SCORES}
    return OfflineData(list(order), torch.tensor(pointers)[places], **scores)


def check_pointer(pointer: Sequence[int] | None, pool_size: int, shots: int, where: str) -> None:
    """Raise ValueError unless `pointer` names `shots` different candidates of a pool; `where` is file and row."""
    if pointer is None or len(pointer) != shots:
        length = 0 if pointer is None else len(pointer)
        raise ValueError(f"{where}: pointer {pointer} has {length} indices, `shots` is {shots}: change one of them")
    outside = [index for index in pointer if not 0 <= index < pool_size]
    if outside:
        raise ValueError(
            f"{where}: pointer {list(pointer)}: index {outside[0]} is outside the pool of {pool_size} candidates "
            f"(0 to {pool_size - 1}): correct the row, or task.candidates"
        )
    if len(set(pointer)) != len(pointer):
        raise ValueError(f"{where}: pointer {list(pointer)} names a candidate twice: drop the row")


def import_json(path: Path, pool_size: int, shots: int) -> list[dict[str, Any]]:
    """Return rows for `write_candidates` from legacy JSON.

    Either a list of objects with the columns' names, or `{query: {"pointer_candidates": [{"pointer": [...],
    "vqa_correct": ..., "vqa_acc_score": ..., "beam_score": ..., "logprob_score": ..., "gen_method": ...}]}}` as the
    source wrote it; `beam_score` is its information gain. A score that is absent or null is missing.

    Raises:
        ValueError: not of this shape, or a pointer that `check_pointer` refuses; with file and row.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = _flat(content)
    except (json.JSONDecodeError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(
            f"{path}: not scored sequences ({type(error).__name__}: {error}): write a list of objects with "
            f"{', '.join(SCHEMA.names)}, or query: {{pointer_candidates: [...]}}"
        ) from None
    for number, row in enumerate(rows):
        check_pointer(row["pointer"], pool_size, shots, f"{path}, row {number} (query {row['query']})")
    return rows


def _flat(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, Mapping):
        found = [(query, item) for query, entry in content.items() for item in entry["pointer_candidates"]]
    else:
        found = [(item["query"], item) for item in content]
    rows = []
    for query, item in found:
        row: dict[str, Any] = {"query": str(query), "pointer": [int(index) for index in item["pointer"]]}
        row |= {name: _number(item.get(name, item.get(_LEGACY[name]))) for name in SCORES}
        row["method"] = str(item.get("method", item.get(_LEGACY["method"], "imported")))
        rows.append(row)
    return rows


def _number(value: Any) -> float | None:
    number = None if value is None else float(value)
    return None if number is None or math.isnan(number) else number
