"""d-final of seed 002: no lower hinge, so that a student may reach its teacher; scores and over-confidence are held."""

from torch import Tensor
from torch.nn import functional

from trainers.objectives.discriminator_scores import Diagnostics, Scores, ranking_loss


def discriminator_loss(
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

    ranking_weight * -log sigmoid(clamp(diff / temperature)) + score_reg * (sum_T^2 + sum_S^2)
    + penalty_weight * relu(diff - penalty_threshold)^2, with diff of the masked means. The regulariser is on the raw
    sums, so it grows with the square of the length: at 20 tokens it bounds mean scores 400 times as hard as at one.
    """
    diff = teacher.means - student.means
    ranking = ranking_loss(diff, temperature)
    regulariser = score_reg * (teacher.sums.square() + student.sums.square())
    penalty = functional.relu(diff - penalty_threshold).square()
    diagnostics = {
        "critic/ranking_loss": ranking,
        "critic/score_reg": regulariser,
        "critic/diff_penalty": penalty,
    }
    return ranking_weight * ranking + regulariser + penalty_weight * penalty, diagnostics
