"""What a variant of `innovations` or `gspo` may use, by name; `parts.py` says which."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.objectives.diagnostics import Diagnostics
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
