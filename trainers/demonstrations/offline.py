"""Offline data: scored candidate sequences as Parquet, one row per (query, sequence)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ablation.contract.atomic import replacing
from trainers.demonstrations.source_json import SCORES

FILE = "candidates.parquet"
SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("pointer", pa.list_(pa.int64())),
        *((name, pa.float64()) for name in SCORES),
        ("method", pa.string()),
    ]
)


@dataclass(frozen=True)
class OfflineData:
    """Sequences of Q queries, at most N of each, all of length S."""

    queries: list[str]
    present: Tensor  # (Q, N) bool: queries may have fewer than N; what stands in the other places means nothing
    pointers: Tensor  # (Q, N, S) int64
    correct: Tensor  # (Q, N) float32, NaN where missing; so the others
    acc_score: Tensor
    info_score: Tensor  # gain in probability
    logp_gain: Tensor  # gain in log-probability, nats


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
        ValueError: a column is missing, there is no row, or a pointer is outside the pool, repeated or not of length S;
            with file and row.
    """
    table = pq.read_table(path)
    if absent := [name for name in SCHEMA.names if name not in table.column_names]:
        raise ValueError(f"{path}: no column {', '.join(absent)}; the columns are {', '.join(SCHEMA.names)}")
    pointers = table["pointer"].to_pylist()
    if not pointers:
        raise ValueError(f"{path}: no sequence")
    for row, pointer in enumerate(pointers):
        check_pointer(pointer, pool_size, shots, f"{path}, row {row}")
    order: dict[str, list[int]] = {}
    for row, query in enumerate(table["query"].to_pylist()):
        order.setdefault(query, []).append(row)
    most = max(map(len, order.values()))
    places = torch.tensor([rows + rows[:1] * (most - len(rows)) for rows in order.values()])
    present = torch.tensor([[place < len(rows) for place in range(most)] for rows in order.values()])
    scores = {name: torch.tensor(table[name].to_numpy(zero_copy_only=False)).float()[places] for name in SCORES}
    return OfflineData(list(order), present, torch.tensor(pointers)[places], **scores)


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
