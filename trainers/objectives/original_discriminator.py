"""d-original, the loss of GAD (arXiv 2511.10643; `core_algos.py` of its code): Bradley-Terry on raw scores."""

from torch import Tensor
from torch.nn import functional

from trainers.objectives.discriminators import PairDiagnostics, Scores


def original_discriminator(teacher: Scores, student: Scores) -> tuple[Tensor, PairDiagnostics]:
    """Return the loss (N,), `-log sigmoid(raw_T - raw_S)`, which saturates: at difference 15 its gradient is 3e-7."""
    loss = -functional.logsigmoid(teacher.raw - student.raw)
    return loss, {"critic/ranking_loss": loss}
