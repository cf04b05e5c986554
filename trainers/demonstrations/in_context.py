"""Interface of in-context models, which the modules `in_context_<task>` implement, and batched passes over items."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainers.assets import files
from trainers.demonstrations.config import Sizes
from trainers.demonstrations.prepared import Prepared
from trainers.running.stage import Stage

SPLITS = ("train", "validation", "test")
SAVE_AFTER = 60.0  # seconds between checkpoints, the most that a kill can cost
Results = tuple[Tensor, Sequence[str]]  # numbers (B, C) of B rows, and a text for each row or none at all


@dataclass(frozen=True)
class Division:
    """Division of an in-context model's items, which are given by number, into queries and demonstrations."""

    queries: Sequence[int]  # (Q,) items
    splits: Mapping[str, range]  # indices into `queries` of train, validation and test
    demonstrations: Sequence[int]  # (D,) items
    pools: Tensor  # (Q, K) int64; pointer p of query q is demonstrations[pools[q, p]]


@dataclass(frozen=True)
class Scores:
    """Scores of the answers to B queries, each given after some demonstrations; all tensors are (B,) float32."""

    correct: Tensor  # 1 or 0
    acc_score: Tensor  # soft accuracy in [0, 1]
    gold_logp: Tensor  # log-probability of the right answer, nats
    accuracy: Tensor  # reported by the evaluation: `correct`, or the benchmark's own accuracy
    answers: Sequence[str]  # B texts


_NUMBERS = ("correct", "acc_score", "gold_logp", "accuracy")


class InContextModel(Protocol):
    """Frozen model that answers queries after demonstrations; queries and demonstrations are numbers of items."""

    names: Sequence[str]  # names of the items
    clusters: Sequence[str] | None  # cluster of each item, whose items tend to be right or wrong together

    def divide(self) -> Division:
        """Return the division of the items into queries and demonstrations."""
        ...

    def embed(self, items: Tensor) -> Tensor:
        """Return the embeddings (B, d) of items (B,), without their answers."""
        ...

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Return the scores of the answers to queries (B,) after demonstrations (B, S); S may be 0 (zero-shot)."""
        ...

    def in_words(self, items: Sequence[int]) -> list[tuple[str, str]]:
        """Return (question, answer) of each item as text, with the answer that demonstrations show."""
        ...

    def right_answers(self, queries: Sequence[int]) -> list[str]:
        """Return the right answer to each query as text."""
        ...


def load_in_context_model(stage: Stage) -> InContextModel:
    """Return the in-context model of the stage's `task`."""
    assets = {name: files(folder) for name, folder in stage.inputs.items() if name in ("model", "embedder", "data")}
    load: Callable[..., InContextModel] = stage.parts["in_context"]
    return load(stage.config.task, assets, stage.inputs["learner"], stage.devices[0])


def consecutive_splits(sizes: Sizes) -> dict[str, range]:
    """Return {split: range} with consecutive ranges for train, validation and test."""
    splits, start = {}, 0
    for name in SPLITS:
        length = getattr(sizes, name)
        splits[name] = range(start, start + length)
        start += length
    return splits


def divide_questions(
    training: Sequence[int], test: Sequence[int] | None, *, sizes: Sizes, candidates: int, seed: int
) -> Division:
    """Draw training and validation queries from the items `training`, whose other items become demonstrations.

    The test queries are the first items of `test`; if that is None, they are drawn from `training` too. Each query gets
    its own pool of `candidates` (K) distinct demonstrations, drawn uniformly. Raises ValueError if there are too few
    questions.
    """
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(seed)).tolist()
    drawn = [training[place] for place in order]
    count = sizes.train + sizes.validation + (sizes.test if test is None else 0)
    queries, rest = drawn[:count], drawn[count:]
    if len(rest) < candidates:
        raise ValueError(
            f"data: task.sizes leaves {len(rest)} of {len(drawn)} questions as demonstrations, fewer than "
            f"task.candidates {candidates}; lower task.sizes or task.candidates"
        )
    if test is not None:
        if len(test) < sizes.test:
            raise ValueError(
                f"data: task.sizes.test {sizes.test} exceeds the number of test questions, {len(test)}; lower "
                "task.sizes.test"
            )
        queries = [*queries, *test[: sizes.test]]
    generator = torch.Generator().manual_seed(seed)
    pools = torch.stack([torch.randperm(len(rest), generator=generator)[:candidates] for _ in queries])
    return Division(queries, consecutive_splits(sizes), rest, pools)


class Resumable:
    """Passes over many rows in batches, which continue from a checkpoint after the stage is killed.

    Batches begin at multiples of the batch size after a restart too, so that padding, and with it every result, is
    bit-identical. Each rank has the whole model and runs some of the batches.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.batch_size = stage, stage.config.score_batch
        self.micro_batch = stage.micro_batch(self.batch_size)
        saved = stage.load_checkpoint()
        self.done: dict[str, Tensor] = dict(saved.tensors) if saved is not None else {}
        self.texts: list[str] = saved.state["texts"] if saved is not None else []
        self._places = {text: place for place, text in enumerate(self.texts)}
        self.saved = time.monotonic()

    def rows(self, name: str, count: int, work: Callable[[Tensor], Results]) -> Tensor:
        """Return the results of `work` for the rows 0 to count - 1 as a float32 table of `count` rows.

        name: name of the pass, unique in the stage. work: takes row numbers (B,) and returns numbers (B, C) on the CPU,
        and a text per row or none. If memory runs out, it is called again with fewer rows. With texts, the table has an
        additional last column with their indices in `self.texts`, which float32 holds exactly up to 16 million.
        """
        ranks = self.stage.ranks
        tables = [self.done[name]] if name in self.done else []
        begin = len(tables[0]) if tables else 0
        while begin < count:
            numbers = torch.arange(begin, min(begin + self.batch_size * ranks.size, count))
            of_rank = numbers[ranks.rank * self.batch_size :][: self.batch_size]  # may be empty in the last round

            def attempt(size: int, rows: Tensor = of_rank) -> list[Results]:
                return [work(part) for part in rows.split(size)]

            parts = self.micro_batch.retry(len(of_rank), attempt) if len(of_rank) else []
            for results in ranks.gather(parts):
                tables += [self._table(*part) for part in results]
            begin += len(numbers)
            self.stage.progress(begin, count, f"rows ({name})")
            if ranks.same(time.monotonic() - self.saved) >= SAVE_AFTER:
                self.done[name] = torch.cat(tables)
                finished = sum(len(table) for table in self.done.values())
                self.stage.save_checkpoint(finished, self.done, {"texts": self.texts})
                self.saved = time.monotonic()
                tables = [self.done[name]]
        self.done[name] = torch.cat(tables)
        return self.done[name]

    def _table(self, values: Tensor, texts: Sequence[str]) -> Tensor:
        """Return values (B, C), with the indices of the texts as an additional last column if there are texts."""
        if not texts:
            return values
        for text in texts:
            if text not in self._places:
                self._places[text] = len(self.texts)
                self.texts.append(text)
        return torch.cat([values, torch.tensor([[float(self._places[text])] for text in texts])], 1)


def score_pointers(
    model: InContextModel, prepared: Prepared, queries: Tensor, pointers: Tensor, *, work: Resumable, name: str
) -> Scores:
    """Return the scores of queries (B,), each after the demonstrations at its `pointers` (B, S) into its pool.

    name: name of this pass in the checkpoint and in the progress messages.
    """
    demonstrations = prepared.demonstration_items[prepared.pools[queries[:, None], pointers]]
    items = prepared.query_items[queries]

    def rows(part: Tensor) -> Results:
        scores = model.score(items[part], demonstrations[part])
        return torch.stack([getattr(scores, field).float().cpu() for field in _NUMBERS], dim=1), scores.answers

    correct, acc_score, gold_logp, accuracy, answers = work.rows(name, len(queries), rows).unbind(1)
    return Scores(correct, acc_score, gold_logp, accuracy, [work.texts[int(number)] for number in answers])
