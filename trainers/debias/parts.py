"""Which formulas a variant of `debias` uses, in addition to BiasEdit's; see `ablation.contract.parts`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainers.objectives import formula

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.debias.config import DebiasConfig


@dataclass(frozen=True)
class GrpoTerm:
    """A reward and a KL to the unedited model, and how they join the edit loss."""

    reward: "Callable[[Tensor, Tensor], Tensor]"  # of lp_anti and lp_stereo, (B,) each
    kl: "Callable[[Tensor, Tensor], Tensor]"  # of the KL at the tokens of anti-stereotypes (N,) and stereotypes (M,)
    loss: "Callable[..., Tensor]"  # of reward and KL
    combine: "Callable[..., Tensor]"  # of edit loss and this loss


@dataclass(frozen=True)
class Curriculum:
    """The reward-based curriculum: how strong it is at a distance from SS 0.5, and the weight of the batch."""

    alpha: "Callable[[Any, float, float], float]"
    weight: Callable[[float, float], float]


@dataclass(frozen=True)
class Terms:
    """The terms of a variant's objective; None where it does not have one."""

    grpo: GrpoTerm | None = None
    curriculum: Curriculum | None = None
    fairness: "Callable[[Tensor, Tensor], Tensor] | None" = None  # of lp_anti and lp_stereo, (B,) each


def parts(config: "DebiasConfig", stage: str) -> Terms:
    """Return the terms that stage `train` uses; the others use none."""
    from trainers.objectives import curriculum, debias

    if stage != "train":
        return Terms()
    grpo = GrpoTerm(formula(f"{config.grpo.reward}_reward"), debias.mean_token_kl, debias.grpo_loss, debias.combine)
    rcs = Curriculum(curriculum.rcs_alpha_at, curriculum.rcs_weight)
    return Terms(
        grpo if config.grpo.weight > 0 else None,
        rcs if config.rcs.mode == "adaptive" else None,
        debias.fairness_gap if config.mo_fairness_weight > 0 else None,
    )
