"""The in-context model of task `concepts`, a small Lfm2 (arXiv 2511.23404)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import Lfm2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from trainers.demonstrations.config import Concepts
from trainers.demonstrations.in_context import Division, Scores, consecutive_splits


@dataclass(frozen=True)
class Sequences:
    """N sequences of T word pairs: words (N, T, 2), and shown label, right label (gold) and concept, (N, T) each."""

    words: Tensor
    shown: Tensor
    gold: Tensor
    concepts: Tensor


def vocabulary(task: Concepts) -> int:
    """Return the number of tokens: one for each word and label."""
    return task.concepts * task.words + task.labels


def first_label(task: Concepts) -> int:
    """Return the token of label 0; the tokens of words come first."""
    return task.concepts * task.words


def draw_sequences(task: Concepts, places: Tensor, generator: torch.Generator, *, clean: int = 0) -> Sequences:
    """Return random sequences of word pairs, each with its own random mapping of concepts to labels.

    places: (N, T) int64, each pair's concept as an index into the concepts of its sequence. clean: number of pairs at
    the start of a sequence that have no word noise.
    """
    count, length = places.shape
    order = torch.rand(count, task.concepts, generator=generator).argsort(1)[:, : task.labels]
    mapping = torch.rand(count, task.labels, generator=generator).argsort(1)  # index of a concept -> label
    concepts, gold = order.gather(1, places), mapping.gather(1, places)
    words = concepts[..., None] * task.words + torch.randint(task.words, (count, length, 2), generator=generator)
    any_word = torch.randint(task.concepts * task.words, words.shape, generator=generator)
    noisy = torch.rand(words.shape, generator=generator) < task.word_noise
    noisy[:, :clean] = False
    words = torch.where(noisy, any_word, words)
    any_label = torch.randint(task.labels, gold.shape, generator=generator)
    shown = torch.where(torch.rand(gold.shape, generator=generator) < task.label_noise, any_label, gold)
    return Sequences(words, shown, gold, concepts)


def draw_queries(task: Concepts) -> Sequences:
    """Return a sequence for each query: pair 0 is the query, and pairs 1 to K are its candidate demonstrations."""
    generator = torch.Generator().manual_seed(task.seed)
    count = task.sizes.train + task.sizes.validation + task.sizes.test
    places = torch.arange(task.candidates) % task.labels
    shuffled = torch.rand(count, task.candidates, generator=generator).argsort(1)
    query = torch.randint(task.labels, (count, 1), generator=generator)
    return draw_sequences(task, torch.cat([query, places[shuffled]], dim=1), generator, clean=1)


def word_embeddings(task: Concepts) -> Tensor:
    """Return random embeddings (words, d); two words of a concept have the expected cosine `concept_share`."""
    generator = torch.Generator().manual_seed(task.seed + 1)
    centres = torch.randn(task.concepts, task.d_embedding, generator=generator).repeat_interleave(task.words, 0)
    vectors = torch.randn(task.concepts * task.words, task.d_embedding, generator=generator)
    return task.concept_share**0.5 * centres + (1 - task.concept_share) ** 0.5 * vectors


FOLDER = "learner"  # subfolder of the stage `learner` with its weights


class ConceptModel:
    """In-context model of the task `concepts`: the trained Lfm2 and the task's queries."""

    def __init__(self, task: Concepts, model: Lfm2ForCausalLM, device: str) -> None:
        self.task, self.model, self.device = task, model.to(device).eval().requires_grad_(False), device
        self.queries = draw_queries(task)
        self.count = count = len(self.queries.words)
        candidate_names = [f"query-{number}/{place}" for number in range(count) for place in range(task.candidates)]
        self.names = [*(f"query-{number}" for number in range(count)), *candidate_names]
        self.clusters = None  # the task has no other concepts than these, so they are not a sample

    def divide(self) -> Division:
        """Return the queries of all splits, each with its own candidates."""
        pools = torch.arange(self.count * self.task.candidates).view(self.count, self.task.candidates)
        splits = consecutive_splits(self.task.sizes)
        return Division(range(self.count), splits, range(self.count, len(self.names)), pools)

    def embed(self, items: Tensor) -> Tensor:
        """Return the mean embedding of each item's two words, (B, d), which does not depend on the trained model."""
        words = self.queries.words
        rows = torch.cat([words[:, 0], words[:, 1:].flatten(0, 1)])
        return word_embeddings(self.task)[rows[items]].mean(1)

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Return the scores of the answers; acc_score is the right label's probability."""
        first, drawn = first_label(self.task), self.queries
        words, shown = drawn.words[:, 1:].flatten(0, 1), drawn.shown[:, 1:].flatten(0, 1)
        demonstrations = demonstrations - self.count
        prompt = torch.cat([words[demonstrations], first + shown[demonstrations][..., None]], dim=-1).flatten(1)
        tokens = torch.cat([prompt, drawn.words[queries, 0]], dim=1).to(self.device)
        with torch.no_grad():
            logits = self.model(input_ids=tokens, use_cache=False).logits[:, -1, first:]
        logp = logits.float().log_softmax(-1).cpu()
        gold = drawn.gold[queries, 0]
        gold_logp = logp.gather(1, gold[:, None]).squeeze(1)
        predicted = logp.argmax(1)
        correct = (predicted == gold).float()
        answers = [f"label {label}" for label in predicted.tolist()]
        return Scores(correct, gold_logp.exp(), gold_logp, correct, answers)

    def in_words(self, items: Sequence[int]) -> list[tuple[str, str]]:
        """Return the two words of each item, such as `concept 3 word 5`, and the shown label."""
        numbers = torch.tensor(items, dtype=torch.int64)
        candidates = (numbers - self.count).clamp(min=0)  # of the demonstrations, each a candidate of one query
        is_query = numbers < self.count
        query = torch.where(is_query, numbers, candidates // self.task.candidates)
        place = torch.where(is_query, 0, candidates % self.task.candidates + 1)
        pairs, labels = self.queries.words[query, place].tolist(), self.queries.shown[query, place].tolist()
        named = [
            f"concept {concept} word {word}" for concept in range(self.task.concepts) for word in range(self.task.words)
        ]
        return [
            (f"{named[one]}, {named[other]}", f"label {label}")
            for (one, other), label in zip(pairs, labels, strict=True)
        ]

    def right_answers(self, queries: Sequence[int]) -> list[str]:
        """Return the right label of each query."""
        return [f"label {label}" for label in self.queries.gold[torch.tensor(queries), 0].tolist()]


def load(task: Concepts, assets: Mapping[str, Path], learner: Path, device: str) -> ConceptModel:
    """Return the model with the weights that the stage `learner` wrote to the folder `learner`."""
    disable_progress_bar()
    return ConceptModel(task, Lfm2ForCausalLM.from_pretrained(learner / FOLDER, use_safetensors=True), device)
