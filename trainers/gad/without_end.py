"""Sampler that removes end tokens from responses, for `rollout.engine: own_without_end`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainers.policy.batch import Sequences
from trainers.policy.responses import Responder


@dataclass(frozen=True)
class Trimmed(Sequences):
    """Responses whose end tokens are in `completion_ids`, but masked out in `completion_mask`."""

    def ended(self, eos: int) -> Tensor:
        """Return a mask (N,) of the responses that ended with the token `eos` instead of at the length limit."""
        return (self.completion_ids == eos).any(1)


class WithoutEnd:
    """Sampler with the student's weights that removes end tokens, as the notes of black-opd recommend (form 1).

    Neither the critic nor the student's update sees the token. A response of this token alone keeps it.
    """

    def __init__(self, *responder: Any, version: Callable[[], int], **_: object) -> None:
        self.responder, self.version = Responder(*responder[:3]), version

    @property
    def weights_version(self) -> int:
        """Return the number of updates of the weights that sample, which are the student's own."""
        return self.version()

    def __call__(self, prompts: Sequence[Sequence[int]], **settings: Any) -> tuple[Sequences, list[str]]:
        """Return the responses and texts of `Responder`, with `completion_mask` and `logps` set to 0 at end tokens."""
        sequences, texts = self.responder(prompts, **settings)
        assert sequences.logps is not None  # as they are sampled
        keep = sequences.completion_mask.bool() & (sequences.completion_ids != self.responder.tokenizer.eos_token_id)
        keep[:, 0] = True
        logps, mask = torch.where(keep, sequences.logps, 0.0), keep.to(sequences.completion_mask.dtype)
        return Trimmed(**vars(replace(sequences, completion_mask=mask, logps=logps))), texts
