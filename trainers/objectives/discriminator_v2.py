"""d-v2 of seed 002: d-v1 with an upper hinge, so that the difference is held between the two."""

from torch import Tensor
from torch.nn import functional

from trainers.objectives import discriminator_v1
from trainers.objectives.discriminator_scores import Diagnostics, Scores


def discriminator_loss(
    teacher: Scores,
    student: Scores,
    *,
    margin: float = 1.0,
    max_margin: float = 5.0,
    temperature: float = 2.0,
    ranking_weight: float = 0.5,
) -> tuple[Tensor, Diagnostics]:
    """Return d-v1 + relu(diff - max_margin), (P,), on masked means."""
    loss, diagnostics = discriminator_v1.discriminator_loss(
        teacher, student, margin=margin, temperature=temperature, ranking_weight=ranking_weight
    )
    upper = functional.relu(teacher.means - student.means - max_margin)
    return loss + upper, {**diagnostics, "critic/hinge_loss_upper": upper}
