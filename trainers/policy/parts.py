"""Names of the code that a variant of `innovations` or `gspo` uses in each stage; see `ablation.contract.parts`.

A formula is a file in `trainers/objectives/` with a function of the same name: `ratio: token` chooses `token_ratio`.
"""

from typing import TYPE_CHECKING

from trainers.objectives import formula
from trainers.tasks import task_of

if TYPE_CHECKING:
    from trainers.policy.config import PolicyConfig

ADAPTERS, VLLM = "trainers.policy.lora.Adapters", "trainers.policy.vllm_engine.VllmEngine"


def parts(config: "PolicyConfig", stage: str) -> dict[str, str]:
    """Return {slot: dotted name} of the code that `stage` uses; slots that the variant does not use are absent.

    Shapes are those of `trainers.policy.grpo`; `Objective` there states the arguments of the formulas.
    """
    used = {"task": task_of(config.task)}
    if stage == "warm_start" and config.warm_start.memory.lora is not None:
        used["adapters"] = ADAPTERS
    if stage != "reinforce":
        return used
    if config.memory.lora is not None:
        used["adapters"] = ADAPTERS
    if config.rollout.engine == "vllm":  # samples in the policy's place
        used["engine"] = VLLM
    if config.dynamic_sampling is not None:  # returns a `Rollout`
        used["dynamic_sampling"] = "trainers.policy.dynamic_sampling.informative_groups"
    if config.overlong_penalty is not None:  # of lengths (N,)
        used["overlong_penalty"] = formula("overlong_penalty")
    if config.reward.function is not None:  # the user's, `module:function`
        used["reward_function"] = f"trainers.{config.reward.function.replace(':', '.')}"
    if config.reward.level == "token":
        used["token_reward_model"] = "trainers.policy.value_model.TokenRewardModel"
        used["token_advantages"] = "trainers.objectives.token_rewards.token_advantages"
    if config.advantage.kind == "gae":
        used |= {name: f"trainers.policy.ppo.{name}" for name in ("step", "new_critic", "with_critic")}
    else:
        used["step"] = "trainers.policy.grpo.step"
        used["advantages"] = formula(f"{config.advantage.kind}_advantages")
    return used | objective_parts(config)


def objective_parts(config: "PolicyConfig") -> dict[str, str]:
    """Return {slot: dotted name} of the formulas of the policy loss, `trainers.policy.grpo.Objective`."""
    used = {"ratio": formula(f"{config.ratio}_ratio"), "surrogate": formula(f"{config.surrogate.kind}_surrogate")}
    if config.ema_smoothing is not None:
        used["ema_smoothing"] = formula("ema_smoothing")
    if config.gradient_adaptive is not None:
        used["gradient_adaptive"] = "trainers.objectives.gradient_adaptive.gradient_adaptive_weights"
    if config.temporal_decay is not None:
        used["temporal_decay"] = "trainers.objectives.temporal_decay.temporal_decay_weights"
    at_last = config.weight_on == "response_ratio"
    if at_last:
        used["response_mean"] = formula("response_mean")
    if config.amic:
        used["sequence_ratio"] = formula("response_mean" if at_last else "amic")
    elif config.surrogate.kind == "ptrw" and config.ratio == "token" and not at_last:
        used["sequence_ratio"] = "trainers.objectives.amic.to_arithmetic_ratio"
    return used
