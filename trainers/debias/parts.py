"""Names of the formulas that only some variants of `debias` use; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from trainers.objectives import formula

if TYPE_CHECKING:
    from trainers.debias.config import DebiasConfig


def parts(config: "DebiasConfig", stage: str) -> dict[str, str]:
    """Return {slot: dotted name} of the formulas that `stage` uses; only `train` uses any.

    reward: takes the mean log-probabilities of anti-stereotypes and stereotypes, (B,) each, and returns a scalar.
    rcs_alpha: takes the settings `rcs`, |SS - 0.5| and the fraction of training, and returns the curriculum's strength.
    rcs_weight: takes reward and strength, and returns the batch's weight.
    """
    used = {}
    if stage == "train" and config.grpo.weight > 0:
        used["reward"] = formula(f"{config.grpo.reward}_reward")
    if stage == "train" and config.rcs.mode == "adaptive":
        used["rcs_alpha"] = "trainers.objectives.curriculum.rcs_alpha_at"
        used["rcs_weight"] = "trainers.objectives.curriculum.rcs_weight"
    return used
