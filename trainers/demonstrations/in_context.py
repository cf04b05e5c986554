"""Interface of in-context models; the modules `in_context_<task>` implement it, one kind of task each."""

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
SAVE_AFTER = 60.0  # seconds between checkpoints: what a kill may cost
Found = tuple[Tensor, Sequence[str]]  # (B, C) numbers of some rows, and for each row a text, or none for all


@dataclass(frozen=True)
class Division:
    """Queries, and the candidate demonstrations of each; both are numbers of the in-context model's items."""

    queries: Sequence[int]  # (Q,) items
    splits: Mapping[str, range]  # places in `queries` of train, validation and test
    demonstrations: Sequence[int]  # (D,) items
    pools: Tensor  # (Q, K) int64, places in `demonstrations`: pointer p of query q means demonstrations[pools[q, p]]


@dataclass(frozen=True)
class Scores:
    """Scores of a batch of queries, answered after its demonstrations; tensors are (B,) float32."""

    correct: Tensor  # 1 or 0
    acc_score: Tensor  # soft accuracy in [0, 1]
    gold_logp: Tensor  # log-probability of the right answer, nats
    accuracy: Tensor  # what the evaluation reports: `correct`, or the benchmark's own accuracy
    answers: Sequence[str]  # B, in words


_NUMBERS = ("correct", "acc_score", "gold_logp", "accuracy")


class InContextModel(Protocol):
    """A frozen model that answers a query after some demonstrations; both are numbers of its items."""

    names: Sequence[str]  # of the items
    clusters: Sequence[str] | None  # of the items: of a sample of clusters, whose queries are right or wrong together

    def divide(self) -> Division:
        """Return which items are queries and which demonstrations."""
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
        """Return the right answers of queries, in words."""
        ...


def load_in_context_model(stage: Stage) -> InContextModel:
    """Return the in-context model of the stage's `task`."""
    assets = {name: files(folder) for name, folder in stage.inputs.items() if name in ("model", "embedder", "data")}
    load: Callable[..., InContextModel] = stage.parts["in_context"]
    return load(stage.config.task, assets, stage.inputs["learner"], stage.devices[0])


def consecutive_splits(sizes: Sizes) -> dict[str, range]:
    """Return the ranges of train, validation and test, one after the other."""
    splits, start = {}, 0
    for name in SPLITS:
        length = getattr(sizes, name)
        splits[name] = range(start, start + length)
        start += length
    return splits


def divide_questions(
    training: Sequence[int], test: Sequence[int] | None, *, sizes: Sizes, candidates: int, seed: int
) -> Division:
    """Draw the training and validation queries; the rest of the training file are the demonstrations.

    Each query gets a pool of its own: `candidates` (K) distinct demonstrations, drawn uniformly. The first `sizes.test`
    items of the evaluation file `test` are the test queries, in its order; None: there is one file, and they are drawn
    from it too. Raises ValueError, with the key to change, if there are too few questions.
    """
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(seed)).tolist()
    drawn = [training[place] for place in order]
    count = sizes.train + sizes.validation + (sizes.test if test is None else 0)
    queries, rest = drawn[:count], drawn[count:]
    if len(rest) < candidates:
        raise ValueError(
            f"data: {len(rest)} of the {len(drawn)} questions are left as demonstrations, but "
            f"task.candidates = {candidates}; lower task.candidates or task.sizes"
        )
    if test is not None:
        if len(test) < sizes.test:
            raise ValueError(
                f"data: there are {len(test)} questions to evaluate, but task.sizes.test = {sizes.test}; lower it"
            )
        queries = [*queries, *test[: sizes.test]]
    generator = torch.Generator().manual_seed(seed)
    pools = torch.stack([torch.randperm(len(rest), generator=generator)[:candidates] for _ in queries])
    return Division(queries, consecutive_splits(sizes), rest, pools)


class Resumable:
    """Runs a stage's passes over many rows; a checkpoint holds the finished rows of each pass by its name.

    Batches begin at multiples of the batch size, also after a kill: so padding, and with it every bit, is the same.
    Each rank has a whole model; they take turns with the batches.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.batch_size = stage, stage.config.score_batch
        self.micro_batch = stage.micro_batch(self.batch_size)
        saved = stage.load_checkpoint()
        self.done: dict[str, Tensor] = dict(saved.tensors) if saved is not None else {}
        self.texts: list[str] = saved.state["texts"] if saved is not None else []
        self._places = {text: place for place, text in enumerate(self.texts)}
        self.saved = time.monotonic()

    def rows(self, name: str, count: int, work: Callable[[Tensor], Found]) -> Tensor:
        """Return what `work` returns for the rows 0 to count - 1, (count, C) float32; texts are a last column.

        That column has numbers, by which `self.texts` gives the texts back, also after a kill. There are far fewer
        answers than float32 has whole numbers, 16 million.

        name: of the pass, unique within the stage. work: called with row numbers (B,), returns (B, C) on the CPU, and
        texts. Where memory does not suffice it is called again with fewer of them.
        """
        ranks = self.stage.ranks
        tables = [self.done[name]] if name in self.done else []
        begin = len(tables[0]) if tables else 0
        while begin < count:
            numbers = torch.arange(begin, min(begin + self.batch_size * ranks.size, count))
            mine = numbers[ranks.rank * self.batch_size :][: self.batch_size]  # none in the last round of some ranks
            for results in ranks.gather(self._work(mine, work)):
                tables += [self._table(*part) for part in results]
            begin += len(numbers)
            self.stage.progress(begin, count, f"rows ({name})")
            if ranks.same(time.monotonic() - self.saved) >= SAVE_AFTER:
                self.done[name] = torch.cat(tables)
                self._save()
                tables = [self.done[name]]
        self.done[name] = torch.cat(tables)
        return self.done[name]

    def _work(self, numbers: Tensor, work: Callable[[Tensor], Found]) -> list[Found]:
        """Return the results of `work` for some rows, all at once or in parts that fit into memory."""
        if not len(numbers):
            return []
        return self.micro_batch.retry(len(numbers), lambda size: [work(part) for part in numbers.split(size)])

    def _table(self, values: Tensor, texts: Sequence[str]) -> Tensor:
        """Return values (B, C) with the texts' numbers, if there are texts, as a last column."""
        if not texts:
            return values
        for text in texts:
            if text not in self._places:
                self._places[text] = len(self.texts)
                self.texts.append(text)
        return torch.cat([values, torch.tensor([[float(self._places[text])] for text in texts])], 1)

    def _save(self) -> None:
        """Keep all finished rows."""
        rows = sum(len(table) for table in self.done.values())
        self.stage.save_checkpoint(rows, self.done, {"texts": self.texts})
        self.saved = time.monotonic()


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
