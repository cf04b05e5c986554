"""What the stages ask of an in-context model; the modules `in_context_<task>` implement it, one kind of task each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from trainers.assets import files
from trainers.demonstrations.config import IN_CONTEXT, Sizes
from trainers.stage import Stage

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Scores:
    """How well a batch of queries was answered after its demonstrations; all (B,) float32."""

    correct: Tensor  # 1 or 0
    acc_score: Tensor  # soft accuracy in [0, 1]
    gold_logp: Tensor  # log-probability of the right answer, nats
    accuracy: Tensor  # what the evaluation reports: `correct`, or the benchmark's own accuracy


@dataclass(frozen=True)
class Pools:
    """Queries, and the demonstrations that each may be given."""

    names: list[str]  # of the queries, unique
    splits: Mapping[str, range]  # numbers of the queries of train, validation and test
    pools: Tensor  # (Q, K) int64: numbers of demonstrations; a pointer p of query q means demonstration pools[q, p]


class InContextModel(Protocol):
    """A frozen model that answers a query after some demonstrations."""

    data: Pools

    def embeddings(self) -> tuple[Tensor, Tensor]:
        """Return embeddings of all queries (Q, d) and of all demonstrations (D, d), of their inputs only."""
        ...

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Answer queries (B,) after demonstrations (B, S), in this order; S = 0 is zero-shot."""
        ...


def load_in_context_model(stage: Stage) -> InContextModel:
    """Return the model that the stage's `task` asks for; only its module is imported."""
    assets = {name: files(folder) for name, folder in stage.inputs.items() if name in ("model", "embedder", "data")}
    module = import_module(f"{IN_CONTEXT}_{stage.config.task.name}")
    return module.load(stage.config.task, assets, stage.inputs["learner"], stage.devices[0])


def score_pointers(
    model: InContextModel,
    queries: Tensor,
    pointers: Tensor,
    batch_size: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Scores:
    """Score pointer sequences (B, S) into the pools of queries (B,), `batch_size` at a time.

    progress: called with (done, total) after every batch.
    """
    demonstrations = model.data.pools[queries[:, None], pointers]
    parts = []
    for begin in range(0, len(queries), batch_size):
        chunk = slice(begin, begin + batch_size)
        parts.append(model.score(queries[chunk], demonstrations[chunk]))
        progress(min(begin + batch_size, len(queries)), len(queries))
    return Scores(*(torch.cat([getattr(part, name) for part in parts]).cpu() for name in Scores.__annotations__))


def split_numbers(data: Pools, split: str) -> Tensor:
    """Return the numbers (N,) of the queries of a split."""
    return torch.tensor(list(data.splits[split]), dtype=torch.int64)


def consecutive_splits(sizes: Sizes) -> dict[str, range]:
    """Return the ranges of train, validation and test, one after the other."""
    splits, start = {}, 0
    for name in SPLITS:
        size = getattr(sizes, name)
        splits[name] = range(start, start + size)
        start += size
    return splits


def draw_pools(queries: int, demonstrations: int, candidates: int, seed: int) -> Tensor:
    """Draw `candidates` distinct demonstrations for each query, uniformly: (Q, K) int64.

    Raises ValueError where there are fewer demonstrations than candidates.
    """
    if demonstrations < candidates:
        raise ValueError(
            f"data: {demonstrations} demonstrations are left for task.candidates = {candidates}: "
            "lower task.candidates or task.sizes"
        )
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(demonstrations, generator=generator)[:candidates] for _ in range(queries)])


def one_file(folder: Path, suffixes: tuple[str, ...]) -> Path:
    """Return the only file in `folder` with one of the suffixes; ValueError if there is none or several."""
    found = sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    if len(found) != 1:
        raise ValueError(f"{folder}: expected one {' or '.join(suffixes)} file, found {len(found)}")
    return found[0]
