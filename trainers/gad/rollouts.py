"""Responses of a student to chats, sampled in groups, and the teacher's responses to the same chats."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.gad.rows import Row
from trainers.policy.batch import Sequences
from trainers.policy.models import Placement
from trainers.policy.responses import Responder
from trainers.policy.systematic_sampling import Distinct
from trainers.policy.text import message_tokens, pad, pad_token, response_tokens
from trainers.running.micro_batch import MicroBatch

# A model carries the number of optimiser steps that its weights have seen, as a buffer. A copy of the weights (a
# sampler's, a reference's) holds the number of the moment of copying, so a difference means stale weights.
_BUFFER = "optimizer_steps"


def count_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Let every step of `optimizer` add 1 to the number that `model` carries, 0 to begin with."""
    model.register_buffer(_BUFFER, torch.tensor(0), persistent=False)  # belongs to a run, not to a saved model

    def add_one(*_: object) -> None:
        model.get_buffer(_BUFFER).add_(1)

    optimizer.register_step_post_hook(add_one)


def set_steps(model: nn.Module, taken: int) -> None:
    """Set the number, for weights that come from a checkpoint."""
    model.get_buffer(_BUFFER).fill_(taken)


def steps_taken(model: nn.Module) -> int:
    """Return the number of optimiser steps that the weights of `model` have seen."""
    return int(model.get_buffer(_BUFFER))


@dataclass
class Rollouts:
    """Samples with `model` as it is at that moment, or, with several ranks, with a copy made for each call.

    limit: longest response in tokens. temperature: None takes the most likely token, with log-probabilities at 1.
    engine: samples what is learnt from, instead of the model itself; it has a copy of the weights.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    placement: Placement
    limit: int
    temperature: float | None = None
    engine: Any = None
    _prompts: dict[str, list[int]] = field(default_factory=dict)
    _teacher: dict[str, list[int]] = field(default_factory=dict)

    def sample(
        self, rows: Sequence[Row], *, group_size: int, generator: torch.Generator, memory: MicroBatch
    ) -> tuple[Sequences, list[str]]:
        """Return group_size responses per row, those of a row side by side, and their texts.

        memory: how many responses are drawn at once; fewer where memory does not suffice.
        """
        respond = self.engine or self._responder
        return respond(
            self._prompts_of(rows),
            group_size=group_size,
            limit=self.limit,
            temperature=self.temperature or 1.0,
            generator=None if self.temperature is None else generator,
            memory=memory,
        )

    def evenly(
        self, rows: Sequence[Row], *, samples: int, generator: torch.Generator, memory: MicroBatch
    ) -> tuple[Distinct, list[str]]:
        """Return the different ones among `samples` responses per row, spread evenly, and their texts."""
        return self._responder.evenly(
            self._prompts_of(rows),
            samples=samples,
            limit=self.limit,
            temperature=self.temperature or 1.0,
            generator=generator,
            memory=memory,
        )

    def teacher(self, rows: Sequence[Row], *, end_token: bool = True) -> Sequences:
        """Return the teacher's responses, cut at the same limit as the student's: a critic must not see the cut."""
        for row in rows:
            if row.id not in self._teacher:
                self._teacher[row.id] = response_tokens(self.tokenizer, row.teacher_response)
        ends = None if end_token else -1
        responses = [self._teacher[row.id][:ends][: self.limit] for row in rows]
        ids, mask = pad(responses, pad_token(self.tokenizer), left=False)
        return Sequences(*self._responder.padded(self._prompts_of(rows)), ids, mask).to(self.placement.device)

    @property
    def version(self) -> int:
        """Return how many updates the weights have seen that sampled last."""
        return steps_taken(self.model) if self.engine is None else self.engine.weights_version

    def cut(self, sequences: Sequences) -> torch.Tensor:
        """Return (N,) booleans: the response reached the limit and did not end."""
        return (sequences.lengths >= self.limit) & ~sequences.ended(self.tokenizer.eos_token_id)

    def _prompts_of(self, rows: Sequence[Row]) -> list[list[int]]:
        for row in rows:
            if row.id not in self._prompts:
                self._prompts[row.id] = message_tokens(self.tokenizer, row.content)
        return [self._prompts[row.id] for row in rows]

    @property
    def _responder(self) -> Responder:
        return Responder(self.model, self.tokenizer, self.placement)
