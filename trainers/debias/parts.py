"""Which code a variant of `debias` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from ablation.contract.parts import Parts

if TYPE_CHECKING:
    from trainers.debias.config import DebiasConfig


def parts(config: "DebiasConfig", stage: str) -> Parts:
    """Return what `stage` uses in addition to BiasEdit, which all variants train with."""
    from trainers.objectives import curriculum, debias

    found: Parts = {}
    if stage != "train":
        return found
    if config.grpo.weight > 0:
        found |= {"reward": getattr(debias, f"{config.grpo.reward}_reward"), "mean_token_kl": debias.mean_token_kl}
        found |= {"grpo_loss": debias.grpo_loss, "combine": debias.combine}
    if config.rcs.mode == "adaptive":
        found |= {"rcs_alpha": curriculum.rcs_alpha_at, "rcs_weight": curriculum.rcs_weight}
    if config.mo_fairness_weight > 0:
        found["fairness"] = debias.fairness_gap
    return found
