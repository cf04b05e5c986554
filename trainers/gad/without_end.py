"""Responses without their end token, for `rollout.engine: own_without_end`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainers.policy.batch import Sequences
from trainers.policy.responses import Responder


@dataclass(frozen=True)
class Trimmed(Sequences):
    """Responses whose end token stands in `completion_ids`, outside of `completion_mask`."""

    def ended(self, eos: int) -> Tensor:
        """Return a mask (N,) of the responses that ended by themselves and were not cut."""
        return (self.completion_ids == eos).any(1)


class WithoutEnd:
    """Samples with the student itself and takes the end token off, as the notes of black-opd recommend (form 1).

    Neither the critic nor the student's update sees that token. A response that consists of it alone keeps it.
    """

    def __init__(self, *responder: Any, version: Callable[[], int], **_: object) -> None:
        self.responder, self.version = Responder(*responder[:3]), version

    @property
    def weights_version(self) -> int:
        """Return how many updates the weights have seen that sample: the student's own."""
        return self.version()

    def __call__(self, prompts: Sequence[Sequence[int]], **settings: Any) -> tuple[Sequences, list[str]]:
        """Return what `Responder` does, with `completion_mask` 0 and `logps` 0 at the end token."""
        sequences, texts = self.responder(prompts, **settings)
        assert sequences.logps is not None  # sampled
        keep = sequences.completion_mask.bool() & (sequences.completion_ids != self.responder.tokenizer.eos_token_id)
        keep[:, 0] = True
        logps = torch.where(keep, sequences.logps, 0.0)
        return Trimmed(
            **vars(replace(sequences, completion_mask=keep.to(sequences.completion_mask.dtype), logps=logps))
        ), texts
