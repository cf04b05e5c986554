"""What stage `embed` leaves for the later stages: embeddings, pools, names and splits. torch only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainers.atomic import replacing, write_json

TENSORS, NAMES = "embeddings.safetensors", "queries.json"


@dataclass(frozen=True)
class Prepared:
    """Embeddings of queries (Q, d) and demonstrations (D, d), pools (Q, K), names and splits of the queries."""

    queries: Tensor
    demonstrations: Tensor
    pools: Tensor
    names: list[str]
    splits: Mapping[str, range]

    @property
    def candidates(self) -> int:
        """Size of a pool, K."""
        return self.pools.shape[1]

    @property
    def d_embedding(self) -> int:
        """Size of an embedding."""
        return self.queries.shape[1]

    def numbers(self, split: str) -> Tensor:
        """Return the numbers (N,) of the queries of a split."""
        return torch.tensor(list(self.splits[split]), dtype=torch.int64)

    def of(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings of queries (N, d) and of their candidates (N, K, d)."""
        return self.queries[numbers], self.demonstrations[self.pools[numbers]]

    def scaled(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same centred on the mean demonstration, at a standard deviation of 1: what selectors read."""
        centre, spread = self.demonstrations.mean(0), self.demonstrations.std()
        query, candidates = self.of(numbers)
        return (query - centre) / spread, (candidates - centre) / spread


def save_prepared(folder: Path, prepared: Prepared) -> None:
    """Write both files into `folder`."""
    tensors = {name: getattr(prepared, name) for name in ("queries", "demonstrations", "pools")}
    with replacing(folder / TENSORS) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
    splits = {name: [part.start, part.stop] for name, part in prepared.splits.items()}
    write_json(folder / NAMES, {"names": prepared.names, "splits": splits})


def load_prepared(folder: Path) -> Prepared:
    """Read what `save_prepared` wrote."""
    content = json.loads((folder / NAMES).read_text(encoding="utf-8"))
    splits = {name: range(*bounds) for name, bounds in content["splits"].items()}
    return Prepared(**load_file(folder / TENSORS), names=content["names"], splits=splits)
