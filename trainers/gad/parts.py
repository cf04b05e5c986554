"""Which code a variant of `gad` uses, by stage; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from trainers.objectives import formula
from trainers.policy.parts import ADAPTERS, VLLM
from trainers.tasks import task_of

if TYPE_CHECKING:
    from trainers.gad.config import GadConfig

ENGINES = {"own_without_end": "trainers.gad.without_end.WithoutEnd", "vllm": VLLM}


def parts(config: "GadConfig", stage: str) -> dict[str, str]:
    """Return what `stage` uses; a slot that a variant does without is absent.

    task: absent for rows of a file. engine: samples in the student's place. discriminator: the loss (N,) of pairs of a
    teacher's and a student's scores. advantages: (N,), of rewards (N,) and the size of a group. ratio: importance
    ratios (N, T), of log-probabilities (N, T). surrogate: PPO's losses (N, T).
    """
    used = {} if config.task is None else {"task": task_of(config.task)}
    if stage == "seqkd" and config.seqkd.memory.lora is not None:
        used["adapters"] = ADAPTERS
    if stage not in ("warmup", "gad"):
        return used
    if config.memory.lora is not None:
        used["adapters"] = ADAPTERS
    if config.rollout.engine in ENGINES:
        used["engine"] = ENGINES[config.rollout.engine]
    return used | {
        "discriminator": formula(f"{config.discriminator.kind}_discriminator"),
        "advantages": formula(f"{config.advantage}_advantages"),
        "ratio": formula(f"{config.ratio}_ratio"),
        "surrogate": formula("clip_surrogate"),
    }
