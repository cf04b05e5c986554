"""d-final of the GAD notes: a ranking loss with penalties on large scores and over-confidence, but no lower hinge."""

from torch import Tensor
from torch.nn import functional

from trainers.objectives.discriminators import PairDiagnostics, Scores, ranking_loss


def final_discriminator(
    teacher: Scores,
    student: Scores,
    *,
    temperature: float = 2.0,
    ranking_weight: float = 1.5,
    score_reg: float = 0.005,
    penalty_threshold: float = 1.5,
    penalty_weight: float = 0.5,
) -> tuple[Tensor, PairDiagnostics]:
    """Return the loss (N,): the ranking loss, plus penalties on large scores and on an over-confident critic.

    It is ranking_weight * -log sigmoid(clamp(diff / temperature)) + score_reg * (raw_T^2 + raw_S^2)
    + penalty_weight * relu(diff - penalty_threshold)^2, with diff the teacher's minus the student's pooled score.
    The regulariser uses raw scores: with pooling last, as in GAD's `dp_critic.py`, they equal the pooled scores; with
    pooling mean or sum, they are sums over tokens, so the regulariser grows with the square of the length.
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
