"""d-v1 of the GAD notes: a lower hinge on the difference of pooled scores, and a softened Bradley-Terry loss."""

from torch import Tensor
from torch.nn import functional

from trainers.objectives.discriminators import PairDiagnostics, Scores, ranking_loss


def v1_discriminator(
    teacher: Scores, student: Scores, *, margin: float = 1.0, temperature: float = 2.0, ranking_weight: float = 0.5
) -> tuple[Tensor, PairDiagnostics]:
    """Return the loss (N,), `relu(margin - diff) + ranking_weight * -log sigmoid(clamp(diff / temperature))`.

    diff is the difference between teacher's and student's pooled scores. Nothing bounds diff from above: the ranking
    term rewards its growth up to the clamp at 10 * temperature.
    """
    diff = teacher.pooled - student.pooled
    hinge, ranking = functional.relu(margin - diff), ranking_loss(diff, temperature)
    diagnostics = {
        "critic/hinge_loss_lower": hinge,
        "critic/ranking_loss": ranking,
    }
    return hinge + ranking_weight * ranking, diagnostics
