"""What the stages ask of an in-context model; the modules `in_context_<task>` implement it, one kind of task each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from trainers.assets import files
from trainers.demonstrations.division import Division
from trainers.demonstrations.prepared import Prepared
from trainers.demonstrations.resumable import Found, Resumable
from trainers.demonstrations.source_json import Imported
from trainers.stage import Stage


@dataclass(frozen=True)
class Scores:
    """How well a batch of queries was answered after its demonstrations; tensors are (B,) float32."""

    correct: Tensor  # 1 or 0
    acc_score: Tensor  # soft accuracy in [0, 1]
    gold_logp: Tensor  # log-probability of the right answer, nats
    accuracy: Tensor  # what the evaluation reports: `correct`, or the benchmark's own accuracy
    answers: Sequence[str]  # B, in words


_NUMBERS = ("correct", "acc_score", "gold_logp", "accuracy")


class InContextModel(Protocol):
    """A frozen model that answers a query after some demonstrations; it knows both by their numbers, its items."""

    names: Sequence[str]  # of the items
    training: Sequence[int]  # items of the training file, in its order
    clusters: Sequence[str] | None  # of the items: of a sample of clusters, whose queries are right or wrong together

    def divide(self, imported: Imported | None) -> Division:
        """Return which items are queries and which demonstrations; `imported` says it for the training queries."""
        ...

    def embed(self, items: Tensor) -> Tensor:
        """Return embeddings (B, d) of items (B,), of their inputs only."""
        ...

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Answer queries (B,) after demonstrations (B, S), in this order; S = 0 is zero-shot."""
        ...

    def in_words(self, items: Sequence[int]) -> list[tuple[str, str]]:
        """Return items for people to read: the question of each, and its answer as demonstrations show it."""
        ...

    def right_answers(self, queries: Sequence[int]) -> list[str]:
        """Return the answers that are wanted of queries, in words."""
        ...


def load_in_context_model(stage: Stage) -> InContextModel:
    """Return the model that the stage's `task` asks for."""
    assets = {name: files(folder) for name, folder in stage.inputs.items() if name in ("model", "embedder", "data")}
    load: Callable[..., InContextModel] = stage.parts["in_context"]
    return load(stage.config.task, assets, stage.inputs["learner"], stage.devices[0])


def score_pointers(
    model: InContextModel, prepared: Prepared, queries: Tensor, pointers: Tensor, *, work: Resumable, name: str
) -> Scores:
    """Score pointer sequences (B, S) into the pools of queries (B,), numbers of `prepared`, in batches.

    name: of this pass, for the checkpoint and the progress.
    """
    demonstrations = prepared.demonstration_items[prepared.pools[queries[:, None], pointers]]
    items = prepared.query_items[queries]

    def rows(part: Tensor) -> Found:
        scores = model.score(items[part], demonstrations[part])
        return torch.stack([getattr(scores, field).float().cpu() for field in _NUMBERS], dim=1), scores.answers

    correct, acc_score, gold_logp, accuracy, answers = work.rows(name, len(queries), rows).unbind(1)
    return Scores(correct, acc_score, gold_logp, accuracy, [work.texts[int(number)] for number in answers])


def one_file(folder: Path, suffixes: tuple[str, ...]) -> Path:
    """Return the only file in `folder` with one of the suffixes; ValueError if there is none or several."""
    found = sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    if len(found) != 1:
        raise ValueError(f"{folder}: expected one {' or '.join(suffixes)} file, found {len(found)}")
    return found[0]
