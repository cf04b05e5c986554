"""Losses of a critic that tells a teacher from a student, and its scores."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# What the discriminator losses share: scores of responses from scores of tokens, and what is measured on the pairs.
#
# A critic gives every response token a score. A pair is a teacher's and a student's response to one prompt. Losses are
# of shape (P,), one per pair, so that the losses of micro-batches add up; their mean is minimised.
Diagnostics = dict[str, Tensor]
Pooling = Literal["mean", "sum", "last", "last_per_token"]
CLAMP = 10.0  # of the scaled difference, before the logsigmoid (the notes)


class Scores(NamedTuple):
    """Two scores of each of P responses, both (P,): `raw`, not divided by the length, and `pooled`."""

    raw: Tensor
    pooled: Tensor


def pool(values: Tensor, mask: Tensor, pooling: Pooling) -> Scores:
    """Return the scores of responses whose tokens have `values` (P, T); `mask` (P, T) is 1 at tokens, padding last.

    mean, sum: raw is the sum over the tokens; pooled is that sum, or divided by the length L.
    last, last_per_token: raw is the last token's value, as the code of GAD has it (arXiv 2511.10643: `last_token_mask`
    in `dp_critic.py`); pooled is that value, or divided by L. The latter is what the formulas of the notes from section
    11.3 on compute where they meet values that were masked before.
    A response without tokens has scores 0.
    """
    lengths = mask.to(values.dtype).sum(-1)
    if pooling in ("mean", "sum"):
        raw = torch.where(mask > 0, values, 0.0).sum(-1)
    else:
        last = (lengths.long() - 1).clamp(min=0)
        raw = torch.where(lengths > 0, values.gather(-1, last[:, None])[:, 0], 0.0)
    return Scores(raw, raw / lengths.clamp(min=1.0) if pooling in ("mean", "last_per_token") else raw)


def ranking_loss(diff: Tensor, temperature: float) -> Tensor:
    """Return -log sigmoid(clamp(diff / temperature, -10, 10)), (P,): the Bradley-Terry loss, log 2 at diff 0."""
    return -functional.logsigmoid((diff / temperature).clamp(-CLAMP, CLAMP))


def pair_diagnostics(teacher: Scores, student: Scores) -> Diagnostics:
    """Return what every discriminator is measured by, (P,) each: of the pooled scores, and of the raw ones.

    In an accuracy a tie counts half: to a perfect copy the critic has 0.5, as one that guesses.
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


# d-original, the loss of GAD (arXiv 2511.10643; `core_algos.py` of its code): Bradley-Terry on raw scores.
def original_loss(teacher: Scores, student: Scores) -> tuple[Tensor, Diagnostics]:
    """Return -log sigmoid(raw_T - raw_S), (P,). It saturates: at a difference of 15 the gradient is 3e-7."""
    loss = -functional.logsigmoid(teacher.raw - student.raw)
    return loss, {"critic/ranking_loss": loss}


# d-v1 of the notes: a lower hinge on the difference of pooled scores, and a softened Bradley-Terry loss.
def v1_loss(
    teacher: Scores, student: Scores, *, margin: float = 1.0, temperature: float = 2.0, ranking_weight: float = 0.5
) -> tuple[Tensor, Diagnostics]:
    """Return relu(margin - diff) + ranking_weight * -log sigmoid(clamp(diff / temperature)), (P,), on pooled scores.

    Nothing bounds diff from above: the ranking term rewards any growth of it, until the clamp at 10 * temperature.
    """
    diff = teacher.pooled - student.pooled
    hinge, ranking = functional.relu(margin - diff), ranking_loss(diff, temperature)
    diagnostics = {
        "critic/hinge_loss_lower": hinge,
        "critic/ranking_loss": ranking,
    }
    return hinge + ranking_weight * ranking, diagnostics


# d-v2 of the notes: d-v1 with an upper hinge, so that the difference is held between the two.
def v2_loss(
    teacher: Scores,
    student: Scores,
    *,
    margin: float = 1.0,
    max_margin: float = 5.0,
    upper_on: Literal["pooled", "raw"] = "pooled",
    temperature: float = 2.0,
    ranking_weight: float = 0.5,
) -> tuple[Tensor, Diagnostics]:
    """Return d-v1 + relu(diff - max_margin), (P,).

    upper_on: which difference the upper hinge holds; section 12 of the notes has the pooled one, section 21.2 the raw
    one, since sums drifted to a difference of 335 while their means kept within the bound.
    """
    loss, diagnostics = v1_loss(teacher, student, margin=margin, temperature=temperature, ranking_weight=ranking_weight)
    difference = teacher.raw - student.raw if upper_on == "raw" else teacher.pooled - student.pooled
    upper = functional.relu(difference - max_margin)
    return loss + upper, {**diagnostics, "critic/hinge_loss_upper": upper}


# d-final of the notes: no lower hinge, so that a student may reach its teacher; scores and over-confidence are held.
def final_loss(
    teacher: Scores,
    student: Scores,
    *,
    temperature: float = 2.0,
    ranking_weight: float = 1.5,
    score_reg: float = 0.005,
    penalty_threshold: float = 1.5,
    penalty_weight: float = 0.5,
) -> tuple[Tensor, Diagnostics]:
    """Return the loss, (P,):

    ranking_weight * -log sigmoid(clamp(diff / temperature)) + score_reg * (raw_T^2 + raw_S^2)
    + penalty_weight * relu(diff - penalty_threshold)^2, with diff of the pooled scores. The regulariser is on
    the raw ones: with scores of the last token, as in GAD's `dp_critic.py`, these are what is compared. Where they are
    sums it grows with the square of the length: at 20 tokens it bounds mean scores 400 times as hard as at one.
    """
    diff = teacher.pooled - student.pooled
    ranking = ranking_loss(diff, temperature)
    regulariser = score_reg * (teacher.raw.square() + student.raw.square())
    penalty = functional.relu(diff - penalty_threshold).square()
    diagnostics = {
        "critic/ranking_loss": ranking,
        "critic/score_reg": regulariser,
        "critic/diff_penalty": penalty,
    }
    return ranking_weight * ranking + regulariser + penalty_weight * penalty, diagnostics
