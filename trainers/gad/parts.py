"""Names of the code that a variant of `gad` uses in each stage; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from trainers.objectives import formula
from trainers.policy.parts import ADAPTERS, VLLM
from trainers.tasks import task_of

if TYPE_CHECKING:
    from trainers.gad.config import GadConfig

ENGINES = {"own_without_end": "trainers.gad.without_end.WithoutEnd", "vllm": VLLM}


def parts(config: "GadConfig", stage: str) -> dict[str, str]:
    """Return {slot: dotted name} of the code that `stage` uses; slots that the variant does not use are absent.

    task: creates the task. adapters: low-rank adapters. engine: samples in place of the student. discriminator: takes
    the scores of N pairs, returns losses (N,). advantages: takes rewards (N,) and the group size, returns advantages
    (N,). ratio: takes log-probabilities (N, T), returns importance ratios (N, T). surrogate: returns PPO's losses
    (N, T).
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
