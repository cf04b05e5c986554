"""Files that the stages `embed` and `candidates` leave for later stages: queries with pools, and scored sequences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ablation.contract.atomic import replacing, write_json

TENSORS, NAMES = "embeddings.safetensors", "queries.json"
CANDIDATES = "candidates.parquet"  # one row for each query and sequence
SCORES = ("correct", "acc_score", "info_score", "logp_gain")


@dataclass(frozen=True)
class Prepared:
    """Queries and demonstrations as embeddings and item numbers, with the queries' pools, names and splits."""

    queries: Tensor  # (Q, d)
    demonstrations: Tensor  # (D, d)
    query_items: Tensor  # (Q,) int64, numbers of the queries as items of the in-context model
    demonstration_items: Tensor  # (D,)
    pools: Tensor  # (Q, K) int64, rows of `demonstrations`
    names: list[str]
    splits: Mapping[str, range]

    @property
    def candidates(self) -> int:
        """Return the number K of candidates in a pool."""
        return self.pools.shape[1]

    @property
    def d_embedding(self) -> int:
        """Return the dimension of an embedding."""
        return self.queries.shape[1]

    def numbers(self, split: str) -> Tensor:
        """Return the indices (N,) of the queries of a split."""
        return torch.tensor(list(self.splits[split]), dtype=torch.int64)

    def of(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings of queries (N, d) and of their candidates (N, K, d)."""
        return self.queries[numbers], self.demonstrations[self.pools[numbers]]

    def scaled(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings like `of`, minus the demonstrations' mean (d,), divided by their deviation (a scalar)."""
        mean, std = self.demonstrations.mean(0), self.demonstrations.std()
        query, candidates = self.of(numbers)
        return (query - mean) / std, (candidates - mean) / std


def save_prepared(folder: Path, prepared: Prepared) -> None:
    """Write the content of `prepared` to two files in `folder`."""
    tensors = {name: value.contiguous() for name, value in vars(prepared).items() if isinstance(value, Tensor)}
    with replacing(folder / TENSORS) as temporary:
        save_file(tensors, temporary)
    splits = {name: [part.start, part.stop] for name, part in prepared.splits.items()}
    write_json(folder / NAMES, {"names": prepared.names, "splits": splits})


def load_prepared(folder: Path) -> Prepared:
    """Return the content of the files that `save_prepared` wrote to `folder`."""
    content = json.loads((folder / NAMES).read_text(encoding="utf-8"))
    splits = {name: range(*bounds) for name, bounds in content["splits"].items()}
    return Prepared(**load_file(folder / TENSORS), names=content["names"], splits=splits)


@dataclass(frozen=True)
class OfflineData:
    """N scored sequences of length S for each of Q queries."""

    queries: list[str]
    pointers: Tensor  # (Q, N, S) int64, indices into the query's pool
    correct: Tensor  # (Q, N) float32, like the tensors below
    acc_score: Tensor
    info_score: Tensor  # gain in probability
    logp_gain: Tensor  # gain in log-probability, nats


def write_candidates(folder: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write `candidates.parquet` to `folder`, with one row per sequence, query by query."""
    with replacing(folder / CANDIDATES) as temporary:
        pq.write_table(pa.table(dict(columns)), temporary)


def read_candidates(folder: Path) -> OfflineData:
    """Return the sequences that `write_candidates` wrote to `folder`; each query has the same number of sequences."""
    table = pq.read_table(folder / CANDIDATES)
    queries = list(dict.fromkeys(table["query"].to_pylist()))
    scores = {name: torch.tensor(table[name].to_numpy()).float().view(len(queries), -1) for name in SCORES}
    pointers = torch.tensor(table["pointer"].to_pylist())
    return OfflineData(queries, pointers.view(*scores["correct"].shape, -1), **scores)
