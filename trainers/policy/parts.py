"""Which code a variant of `innovations` or `gspo` uses, by stage; see `ablation.contract.parts`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablation.contract.parts import part
from trainers.tasks import task_of

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.objectives.diagnostics import Diagnostics
    from trainers.policy.config import PolicyConfig
    from trainers.policy.grpo import Rollout, Run
    from trainers.policy.lora import Adapters
    from trainers.policy.ppo import Critic
    from trainers.policy.value_model import TokenRewardModel, ValueModel
    from trainers.policy.vllm_engine import VllmEngine


@dataclass(frozen=True, kw_only=True)
class Formulas:
    """What the policy loss is made of, without settings; `trainers.policy.grpo.Objective` says what each takes."""

    ratio: "Callable[[Tensor, Tensor, Tensor], Tensor]"
    surrogate: "Callable[..., tuple[Tensor, Diagnostics]]"
    ema_smoothing: "Callable[..., tuple[Tensor, Diagnostics]] | None" = None
    sequence_ratio: "Callable[..., tuple[Tensor, Diagnostics]] | None" = None
    gradient_adaptive: "Callable[..., tuple[Tensor, Diagnostics]] | None" = None
    temporal_decay: "Callable[..., tuple[Tensor, Diagnostics]] | None" = None


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a stage uses; None where the variant does without. Shapes are those of `trainers.policy.grpo`."""

    task: Callable[..., Any]
    adapters: "type[Adapters] | None" = None
    engine: "type[VllmEngine] | None" = None  # samples in the policy's place
    reward_training: Callable[..., None] | None = None  # of the stage `reward_model`
    # of the stage `reinforce`
    step: "Callable[[Run, int], dict[str, float]] | None" = None
    formulas: Formulas | None = None
    advantages: "Callable[[Tensor, int], Tensor] | None" = None  # of rewards (N,) and G
    token_advantages: "Callable[..., Tensor] | None" = None  # of rewards and mask (N, T), and G
    critic: "type[Critic] | None" = None
    build_critic: "Callable[..., ValueModel] | None" = None
    dynamic_sampling: "Callable[..., Rollout] | None" = None
    overlong_penalty: "Callable[..., Tensor] | None" = None  # of lengths (N,)
    token_reward_model: "type[TokenRewardModel] | None" = None
    reward_function: Callable[..., Sequence[float]] | None = None  # the user's


def parts(config: "PolicyConfig", stage: str) -> Parts:
    """Return what `stage` uses."""
    from trainers.policy import dynamic_sampling, grpo, ppo, value_model
    from trainers.policy.lora import Adapters
    from trainers.policy.reward_model import train
    from trainers.policy.vllm_engine import VllmEngine

    task = task_of(config.task)
    if stage == "warm_start":
        return Parts(task=task, adapters=None if config.warm_start.memory.lora is None else Adapters)
    if stage == "reward_model":
        return Parts(task=task, reward_training=train if config.reward_training.enabled else None)
    if stage != "reinforce":
        return Parts(task=task)
    from trainers.objectives.overlong_penalty import overlong_penalty
    from trainers.objectives.token_rewards import token_advantages

    of_critic, of_tokens = config.advantage.kind == "gae", config.reward.level == "token"
    function = None
    if config.reward.function is not None:
        module, _, name = config.reward.function.partition(":")
        function = part(f"trainers.{module}", name)
    return Parts(
        task=task,
        adapters=None if config.memory.lora is None else Adapters,
        engine=None if config.rollout.engine == "own" else VllmEngine,
        step=ppo.step if of_critic else grpo.step,
        formulas=formulas(config),
        advantages=None if of_critic else formula(f"{config.advantage.kind}_advantages"),
        token_advantages=token_advantages if of_tokens else None,
        critic=ppo.Critic if of_critic else None,
        build_critic=ppo.build_critic if of_critic else None,
        dynamic_sampling=None if config.dynamic_sampling is None else dynamic_sampling.informative_groups,
        overlong_penalty=None if config.overlong_penalty is None else overlong_penalty,
        token_reward_model=value_model.TokenRewardModel if of_tokens else None,
        reward_function=function,
    )


def formula(name: str) -> Any:
    """Return the function of this name, in the file of its name in `trainers/objectives`."""
    return part(f"trainers.objectives.{name}", name)


def formulas(config: "PolicyConfig") -> Formulas:
    """Return the formulas of the policy loss."""
    from trainers.objectives.amic import amic, to_arithmetic_ratio
    from trainers.objectives.ema_smoothing import ema_smoothing
    from trainers.objectives.gradient_adaptive import gradient_adaptive_weights
    from trainers.objectives.temporal_decay import temporal_decay_weights

    sequence_ratio = None
    if config.amic:
        sequence_ratio = amic
    elif config.surrogate.kind == "ptrw" and config.ratio == "token":
        sequence_ratio = to_arithmetic_ratio
    return Formulas(
        ratio=formula(f"{config.ratio}_ratio"),
        surrogate=formula(f"{config.surrogate.kind}_surrogate"),
        ema_smoothing=None if config.ema_smoothing is None else ema_smoothing,
        sequence_ratio=sequence_ratio,
        gradient_adaptive=None if config.gradient_adaptive is None else gradient_adaptive_weights,
        temporal_decay=None if config.temporal_decay is None else temporal_decay_weights,
    )
