"""Which code a variant of `gad` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from ablation.contract.parts import Parts
from trainers.policy.parts import group_advantages, of_memory, of_sampling, ratio
from trainers.tasks import task_of

if TYPE_CHECKING:
    from trainers.gad.config import GadConfig


def parts(config: "GadConfig", stage: str) -> Parts:
    """Return what `stage` uses."""
    from trainers.objectives.discriminators import final, original, v1, v2
    from trainers.objectives.losses import clipped

    found: Parts = {} if config.task is None else {"task": task_of(config.task)}
    if stage == "seqkd":
        return found | of_memory(config.seqkd.memory)
    if stage not in ("warmup", "gad"):
        return found
    discriminator = {"original": original, "v1": v1, "v2": v2, "final": final}[config.discriminator]
    found |= {"clip": clipped.surrogate, "ratio": ratio(config.ratio), "advantages": group_advantages(config.advantage)}
    found |= {"discriminator": discriminator.discriminator_loss}
    return found | of_memory(config.memory) | of_sampling(config.rollout)
