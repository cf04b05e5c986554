"""Which code a variant of `innovations` or `gspo` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING, Any

from ablation.contract.parts import Parts, part
from trainers.tasks import task_of

if TYPE_CHECKING:
    from trainers.policy.config import Memory, PolicyConfig, Sampled


def parts(config: "PolicyConfig", stage: str) -> Parts:
    """Return what `stage` uses."""
    found: Parts = {"task": task_of(config.task)}
    if stage == "warm_start":
        found |= of_memory(config.warm_start.memory)
    if stage == "reward_model" and config.reward_training.enabled:
        from trainers.policy.reward_model import train

        found["train"] = train
    if stage == "reinforce":
        found |= of_memory(config.memory) | of_sampling(config.rollout) | of_objective(config) | _of_rewards(config)
    return found


def of_memory(settings: "Memory") -> Parts:
    """Return the adapters, where the settings ask for them."""
    if settings.lora is None:
        return {}
    from trainers.policy.lora import Adapters

    return {"adapters": Adapters}


def of_sampling(settings: "Sampled") -> Parts:
    """Return what samples in the place of the policy."""
    if settings.engine == "own":
        return {}
    from trainers.policy.vllm_engine import VllmEngine

    return {"engine": VllmEngine}


def of_objective(config: "PolicyConfig") -> Parts:
    """Return the parts of the loss. Those with settings of their own have the name of the key that holds them."""
    from trainers.objectives import ratios, surrogates, weights

    found: Parts = {"ratio": ratio(config.ratio)}
    if config.ema_smoothing is not None:
        found["ema_smoothing"] = ratios.ema_smoothing
    if config.amic:
        found["one_ratio"] = ratios.amic
    elif config.surrogate.kind == "ptrw" and config.ratio == "token":
        found["one_ratio"] = ratios.to_arithmetic_ratio
    if config.gradient_adaptive is not None:
        found["gradient_adaptive"] = weights.gradient_adaptive_weights
    if config.temporal_decay is not None:
        found["temporal_decay"] = weights.temporal_decay_weights
    return found | {"surrogate": getattr(surrogates, f"{config.surrogate.kind}_surrogate")}


def ratio(name: str) -> Any:
    """Return the importance ratio of this name."""
    from trainers.objectives import ratios

    return getattr(ratios, f"{name}_ratio")


def group_advantages(name: str) -> Any:
    """Return the advantages of this name."""
    from trainers.objectives import advantages

    return getattr(advantages, f"{name}_advantages")


def _of_rewards(config: "PolicyConfig") -> Parts:
    """Return what becomes of responses before the loss: their choice, rewards and advantages."""
    found: Parts = {}
    if config.advantage.kind == "gae":
        from trainers.policy.value_model import Critic, build_critic

        found |= {"critic": Critic, "build_critic": build_critic}
    else:
        found["advantages"] = group_advantages(config.advantage.kind)
    if config.dynamic_sampling is not None:
        from trainers.policy.experience import collect_informative

        found["collect"] = collect_informative
    if config.overlong_penalty is not None:
        from trainers.objectives.rewards import overlong_penalty

        found["penalty"] = overlong_penalty
    if config.reward.function is not None:
        module, _, name = config.reward.function.partition(":")
        found["reward_function"] = part(f"trainers.{module}", name)
    if config.reward.level == "token":
        from trainers.objectives.rewards import token_advantages
        from trainers.policy.value_model import TokenRewardModel

        found |= {"reward_model": TokenRewardModel, "token_advantages": token_advantages}
    return found
