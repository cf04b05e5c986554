"""Which code a variant of `innovations` or `gspo` uses, by stage; see `ablation.contract.parts`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablation.contract.parts import part
from trainers.objectives import formula
from trainers.tasks import task_of

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.objectives.policy import Diagnostics
    from trainers.policy.config import PolicyConfig
    from trainers.policy.lora import Adapters
    from trainers.policy.value_model import TokenRewardModel
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
    response_mean: "Callable[..., tuple[Tensor, Diagnostics]] | None" = None


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a stage uses; None where the variant does without. Shapes are those of `trainers.policy.grpo`."""

    task: Callable[..., Any]
    adapters: "type[Adapters] | None" = None
    engine: "type[VllmEngine] | None" = None  # samples in the policy's place
    reward_training: Callable[..., None] | None = None  # of the stage `reward_model`
    # of the stage `reinforce`
    step: Callable[[Any, int], dict[str, float]] | None = None  # of a `Run` and its number: of grpo.py, or of ppo.py
    formulas: Formulas | None = None
    advantages: "Callable[[Tensor, int], Tensor] | None" = None  # of rewards (N,) and G
    token_advantages: "Callable[..., Tensor] | None" = None  # of rewards and mask (N, T), and G
    critic: Callable[..., Any] | None = None  # makes a `ppo.Critic`
    with_critic: Callable[..., Any] | None = None  # makes a `ppo.PpoRun` of a `Run` and its critic
    dynamic_sampling: Callable[..., Any] | None = None  # returns a `Rollout`
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

    uses_critic, token_level = config.advantage.kind == "gae", config.reward.level == "token"
    function = None
    if config.reward.function is not None:
        module, _, name = config.reward.function.partition(":")
        function = part(f"trainers.{module}", name)
    return Parts(
        task=task,
        adapters=None if config.memory.lora is None else Adapters,
        engine=None if config.rollout.engine == "own" else VllmEngine,
        step=ppo.step if uses_critic else grpo.step,
        formulas=formulas(config),
        advantages=None if uses_critic else formula(f"{config.advantage.kind}_advantages"),
        token_advantages=token_advantages if token_level else None,
        critic=ppo.new_critic if uses_critic else None,
        with_critic=ppo.with_critic if uses_critic else None,
        dynamic_sampling=None if config.dynamic_sampling is None else dynamic_sampling.informative_groups,
        overlong_penalty=None if config.overlong_penalty is None else overlong_penalty,
        token_reward_model=value_model.TokenRewardModel if token_level else None,
        reward_function=function,
    )


def formulas(config: "PolicyConfig") -> Formulas:
    """Return the formulas of the policy loss: those that settings name, as `ratio: token` names `token_ratio.py`."""
    from trainers.objectives.amic import amic, to_arithmetic_ratio
    from trainers.objectives.ema_smoothing import ema_smoothing
    from trainers.objectives.gradient_adaptive import gradient_adaptive_weights
    from trainers.objectives.response_mean import response_mean
    from trainers.objectives.temporal_decay import temporal_decay_weights

    sequence_ratio, at_last = None, config.weight_on == "response_ratio"
    if config.amic:
        sequence_ratio = response_mean if at_last else amic
    elif config.surrogate.kind == "ptrw" and config.ratio == "token" and not at_last:
        sequence_ratio = to_arithmetic_ratio
    return Formulas(
        ratio=formula(f"{config.ratio}_ratio"),
        surrogate=formula(f"{config.surrogate.kind}_surrogate"),
        ema_smoothing=None if config.ema_smoothing is None else ema_smoothing,
        sequence_ratio=sequence_ratio,
        gradient_adaptive=None if config.gradient_adaptive is None else gradient_adaptive_weights,
        temporal_decay=None if config.temporal_decay is None else temporal_decay_weights,
        response_mean=response_mean if at_last else None,
    )
