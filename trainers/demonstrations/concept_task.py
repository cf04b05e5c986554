"""Task `concepts`: which label belongs to a pair of words? Every sequence has a mapping of its own.

A demonstration is word, word, label. Words of a concept are tokens next to each other; labels follow the words.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.demonstrations.config import Concepts


@dataclass(frozen=True)
class Sequences:
    """N sequences of T word pairs: words (N, T, 2); label shown, right label (gold) and concept, each (N, T)."""

    words: Tensor
    shown: Tensor
    gold: Tensor
    concepts: Tensor


def vocabulary(task: Concepts) -> int:
    """Return the number of tokens: words, then labels."""
    return task.concepts * task.words + task.labels


def first_label(task: Concepts) -> int:
    """Return the token of label 0."""
    return task.concepts * task.words


def draw_sequences(task: Concepts, places: Tensor, generator: torch.Generator, *, clean: int = 0) -> Sequences:
    """Draw a mapping for each sequence and its word pairs.

    Args:
        task: the settings.
        places: (N, T) int64, which of the sequence's `labels` concepts stands where.
        generator: source of all randomness.
        clean: so many pairs at the start have no replaced words.
    """
    count, length = places.shape
    order = torch.rand(count, task.concepts, generator=generator).argsort(1)[:, : task.labels]
    mapping = torch.rand(count, task.labels, generator=generator).argsort(1)  # place -> label
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
    """Draw all queries with their pools: position 0 is the query, 1 to K its candidates, concepts evenly spread."""
    generator = torch.Generator().manual_seed(task.seed)
    count = task.sizes.train + task.sizes.validation + task.sizes.test
    spread = torch.arange(task.candidates) % task.labels
    shuffled = torch.rand(count, task.candidates, generator=generator).argsort(1)
    query = torch.randint(task.labels, (count, 1), generator=generator)
    return draw_sequences(task, torch.cat([query, spread[shuffled]], dim=1), generator, clean=1)


def word_embeddings(task: Concepts) -> Tensor:
    """Return random embeddings (words, d) in which words of a concept have an expected cosine of `concept_share`."""
    generator = torch.Generator().manual_seed(task.seed + 1)
    centres = torch.randn(task.concepts, task.d_embedding, generator=generator).repeat_interleave(task.words, 0)
    own = torch.randn(task.concepts * task.words, task.d_embedding, generator=generator)
    return task.concept_share**0.5 * centres + (1 - task.concept_share) ** 0.5 * own
