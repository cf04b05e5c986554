"""Which code a variant of `debias` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from ablation.contract.parts import Parts

if TYPE_CHECKING:
    from trainers.debias.config import DebiasConfig


def parts(config: "DebiasConfig", stage: str) -> Parts:
    """Return what `stage` uses: beside BiasEdit, which all variants train with."""
    from trainers.objectives.debias import fairness, grpo_debias, rcs_adaptive
    from trainers.objectives.debias import grpo_reward_balanced as balanced
    from trainers.objectives.debias import grpo_reward_balanced_batch as balanced_batch
    from trainers.objectives.debias import grpo_reward_directional as directional

    found: Parts = {}
    if stage != "train":
        return found
    if config.grpo.weight > 0:
        rewards = {"balanced": balanced, "balanced_batch": balanced_batch, "directional": directional}
        found |= {"reward": rewards[config.grpo.reward].reward, "grpo": grpo_debias}
    if config.rcs.mode == "adaptive":
        found["rcs"] = rcs_adaptive
    if config.mo_fairness_weight > 0:
        found["fairness"] = fairness.fairness_gap
    return found
