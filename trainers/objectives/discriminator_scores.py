"""What the discriminator losses share: scores of responses from scores of tokens, and what is measured on the pairs.

A critic gives every response token a score. A pair is a teacher's and a student's response to one prompt. Losses are of
shape (P,), one per pair, so that the losses of micro-batches add up; their mean is minimised.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Diagnostics = dict[str, Tensor]
CLAMP = 10.0  # of the scaled difference, before the logsigmoid (seed 002)


class Scores(NamedTuple):
    """Scores of P responses: sums over their tokens and means over their tokens, both (P,)."""

    sums: Tensor
    means: Tensor


def pool(values: Tensor, mask: Tensor) -> Scores:
    """Return the scores of responses whose tokens have `values` (P, T); `mask` (P, T) is 1 at tokens."""
    sums = torch.where(mask > 0, values, 0.0).sum(-1)
    return Scores(sums, sums / mask.to(values.dtype).sum(-1).clamp(min=1.0))


def ranking_loss(diff: Tensor, temperature: float) -> Tensor:
    """Return -log sigmoid(clamp(diff / temperature, -10, 10)), (P,): the Bradley-Terry loss, log 2 at diff 0."""
    return -functional.logsigmoid((diff / temperature).clamp(-CLAMP, CLAMP))


def pair_diagnostics(teacher: Scores, student: Scores) -> Diagnostics:
    """Return what every discriminator is measured by, (P,) each; the accuracy and the difference are of the means."""
    diff = teacher.means - student.means
    return {
        "critic/d_acc": (diff > 0).to(diff.dtype),
        "critic/score_diff": diff,
        "critic/raw_score_diff": teacher.sums - student.sums,
        "critic/teacher_score": teacher.means,
        "critic/student_score": student.means,
    }
