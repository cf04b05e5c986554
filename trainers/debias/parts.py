"""Names of the formulas that only some variants of `debias` use; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from trainers.objectives import formula

if TYPE_CHECKING:
    from trainers.debias.config import DebiasConfig


def parts(config: "DebiasConfig", stage: str) -> dict[str, str]:
    """Return the formulas that the stage `train` uses; the other stages use none.

    reward: of lp_anti and lp_stereo, (B,) each. rcs_alpha, rcs_weight: the reward-based curriculum, how strong it is at
    a distance from SS 0.5, and the weight of the batch.
    """
    used = {}
    if stage == "train" and config.grpo.weight > 0:
        used["reward"] = formula(f"{config.grpo.reward}_reward")
    if stage == "train" and config.rcs.mode == "adaptive":
        used["rcs_alpha"] = "trainers.objectives.curriculum.rcs_alpha_at"
        used["rcs_weight"] = "trainers.objectives.curriculum.rcs_weight"
    return used
