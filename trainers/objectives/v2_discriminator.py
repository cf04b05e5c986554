"""d-v2 of the GAD notes: d-v1 with an upper hinge, so that the score difference has two bounds."""

from typing import Literal

from torch import Tensor
from torch.nn import functional

from trainers.objectives.discriminators import PairDiagnostics, Scores
from trainers.objectives.v1_discriminator import v1_discriminator


def v2_discriminator(
    teacher: Scores,
    student: Scores,
    *,
    margin: float = 1.0,
    max_margin: float = 5.0,
    upper_on: Literal["pooled", "raw"] = "pooled",
    temperature: float = 2.0,
    ranking_weight: float = 0.5,
) -> tuple[Tensor, PairDiagnostics]:
    """Return the loss (N,): the loss of d-v1 plus `relu(diff - max_margin)`.

    upper_on: whether the upper hinge bounds the difference of pooled scores (section 12 of the GAD notes) or of raw
    scores (section 21.2, because sums drifted to a difference of 335 while their means stayed within the bound).
    """
    loss, diagnostics = v1_discriminator(
        teacher, student, margin=margin, temperature=temperature, ranking_weight=ranking_weight
    )
    difference = teacher.raw - student.raw if upper_on == "raw" else teacher.pooled - student.pooled
    upper = functional.relu(difference - max_margin)
    return loss + upper, {**diagnostics, "critic/hinge_loss_upper": upper}
