"""Which code a variant of `gad` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from ablation.contract.parts import Parts
from trainers.policy.parts import group_advantages, of_memory, of_sampling, ratio
from trainers.tasks import task_of

if TYPE_CHECKING:
    from trainers.gad.config import GadConfig


def parts(config: "GadConfig", stage: str) -> Parts:
    """Return what `stage` uses."""
    from trainers.objectives import discriminators
    from trainers.objectives.surrogates import clip_surrogate

    found: Parts = {} if config.task is None else {"task": task_of(config.task)}
    if stage == "seqkd":
        return found | of_memory(config.seqkd.memory)
    if stage not in ("warmup", "gad"):
        return found
    found |= {"clip": clip_surrogate, "ratio": ratio(config.ratio), "advantages": group_advantages(config.advantage)}
    found |= {"discriminator": getattr(discriminators, f"{config.discriminator.kind}_loss")}
    return found | of_memory(config.memory) | of_sampling(config.rollout)
