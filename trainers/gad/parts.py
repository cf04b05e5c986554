"""Which code a variant of `gad` uses, by stage; see `ablation.contract.parts`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainers.objectives import formula
from trainers.tasks import task_of

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.gad.config import GadConfig
    from trainers.gad.critic import Loss
    from trainers.policy.lora import Adapters
    from trainers.policy.vllm_engine import VllmEngine


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a stage may use. task: None for rows of a file. engine: samples in the student's place."""

    task: "Callable[..., Any] | None" = None
    adapters: "type[Adapters] | None" = None
    engine: "type[VllmEngine] | None" = None


@dataclass(frozen=True, kw_only=True)
class Formulas(Used):
    """What stages `warmup` and `gad` compute with.

    discriminator: the loss (N,) of pairs of a teacher's and a student's scores. advantages: (N,), of rewards (N,) and
    the size of a group. ratio: importance ratios (N, T), of log-probabilities (N, T). clip: PPO's losses (N, T).
    """

    discriminator: "Loss"
    advantages: "Callable[[Tensor, int], Tensor]"
    ratio: "Callable[..., Tensor]"
    clip: "Callable[..., Any]"


def parts(config: "GadConfig", stage: str) -> Used:
    """Return what `stage` uses."""
    from trainers.gad.without_end import WithoutEnd
    from trainers.objectives.clip_surrogate import clip_surrogate
    from trainers.policy.lora import Adapters
    from trainers.policy.vllm_engine import VllmEngine

    engines: dict[str, Any] = {"own": None, "own_without_end": WithoutEnd, "vllm": VllmEngine}
    task = None if config.task is None else task_of(config.task)
    if stage == "seqkd":
        return Used(task=task, adapters=None if config.seqkd.memory.lora is None else Adapters)
    if stage not in ("warmup", "gad"):
        return Used(task=task)
    return Formulas(
        task=task,
        adapters=None if config.memory.lora is None else Adapters,
        engine=engines[config.rollout.engine],
        discriminator=formula(f"{config.discriminator.kind}_discriminator"),
        advantages=formula(f"{config.advantage}_advantages"),
        ratio=formula(f"{config.ratio}_ratio"),
        clip=clip_surrogate,
    )
