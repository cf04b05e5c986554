"""Scores and diagnostics of a critic that distinguishes a teacher's responses from a student's."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# A critic gives every response token a score. A pair is a teacher's and a student's response to one prompt. Losses have
# shape (N,), one for each of N pairs, so that those of micro-batches add up; their mean is minimised.
PairDiagnostics = dict[str, Tensor]
Pooling = Literal["mean", "sum", "last", "last_per_token"]
CLAMP = 10.0  # bound of the scaled difference before the logsigmoid (the GAD notes)


class Scores(NamedTuple):
    """Scores (N,) of N responses: `raw`, and `pooled`, which is `raw / length` or, for sum and last, equal to `raw`."""

    raw: Tensor
    pooled: Tensor


def pool(values: Tensor, mask: Tensor, pooling: Pooling) -> Scores:
    """Return the scores of responses with token `values` (N, T).

    `mask` (N, T) is 1 at tokens and 0 at the padding after them.

    For mean and sum, raw is the sum over the tokens; for last and last_per_token it is the last token's value, as in
    GAD's code (arXiv 2511.10643, `last_token_mask` in `dp_critic.py`). For mean and last_per_token, pooled is raw
    divided by the length, as in the GAD notes from section 11.3 on; else it is raw. Scores of empty responses are 0.
    """
    lengths = mask.to(values.dtype).sum(-1)
    if pooling in ("mean", "sum"):
        raw = torch.where(mask > 0, values, 0.0).sum(-1)
    else:
        last = (lengths.long() - 1).clamp(min=0)
        raw = torch.where(lengths > 0, values.gather(-1, last[:, None])[:, 0], 0.0)
    return Scores(raw, raw / lengths.clamp(min=1.0) if pooling in ("mean", "last_per_token") else raw)


def ranking_loss(diff: Tensor, temperature: float) -> Tensor:
    """Return the Bradley-Terry loss -log sigmoid(clamp(diff / temperature, -10, 10)), (N,); it is log 2 at diff 0."""
    return -functional.logsigmoid((diff / temperature).clamp(-CLAMP, CLAMP))


def pair_diagnostics(teacher: Scores, student: Scores) -> PairDiagnostics:
    """Return the diagnostics (N,) that all discriminators share, from pooled and raw scores.

    Ties count half in accuracies, so that a critic has accuracy 0.5 on a perfect copy of the teacher.
    """
    diff, raw_diff = teacher.pooled - student.pooled, teacher.raw - student.raw
    return {
        "critic/d_acc": 0.5 + 0.5 * diff.sign(),
        "critic/d_acc_raw": 0.5 + 0.5 * raw_diff.sign(),
        "critic/score_diff": diff,
        "critic/raw_score_diff": raw_diff,
        "critic/teacher_score": teacher.pooled,
        "critic/student_score": student.pooled,
    }


def within_group_correlation(scores: Tensor, quality: Tensor, group_size: int) -> Tensor:
    """Return Pearson's correlation (a scalar) of scores and quality, each minus the mean of its group.

    Differences between groups do not count, because advantages depend only on differences within a group. NaN if no
    group has a spread in both.
    """
    x, y = (v.double().view(-1, group_size) for v in (scores, quality))
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    # Equal values may differ from their mean by rounding, so small differences are set to 0.
    x, y = (torch.where(v.abs().amax(1, keepdim=True) > 1e-9, v, 0.0) for v in (x, y))
    scale = (x.square().sum() * y.square().sum()).sqrt()
    return torch.where(scale > 0, (x * y).sum() / scale, torch.nan)
