"""Which code a variant of `demonstrations` uses, by stage; see `ablation.contract.parts`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainers.objectives import formula

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.demonstrations.config import DemonstrationsConfig, Reward
    from trainers.demonstrations.in_context import InContextModel

    # Of all sequences, (Q, N) each: correctness (1 where the query was answered right after it, else 0), soft accuracy
    # in [0, 1], gain over zero-shot in the unit of `reward.gain`; and the settings. Returns rewards (Q, N).
    RewardFunction = Callable[[Tensor, Tensor, Tensor, Reward], Tensor]


@dataclass(frozen=True)
class Loader:
    """How stages `embed`, `candidates` and `evaluate` load the in-context model of the task."""

    in_context: "Callable[..., InContextModel]"


@dataclass(frozen=True)
class Training:
    """Formulas of stages `rce` and `grpo`.

    rewards: by mode, of each in whose name a selector is trained. normalise: rewards (Q, N) by position, for RCE's
    weights. advantages: of rewards (Q, N). positives, trained_queries: which sequences are positive, (Q, N), and which
    queries have enough of them, (Q,).
    """

    rewards: "Mapping[str, RewardFunction]" = field(default_factory=dict)
    normalise: "Callable[[Tensor], Tensor] | None" = None
    advantages: "Callable[[Tensor], Tensor] | None" = None
    positives: "Callable[[Tensor, Tensor, float | None], Tensor] | None" = None
    trained_queries: "Callable[[Tensor, float], Tensor] | None" = None


def parts(config: "DemonstrationsConfig", stage: str) -> Loader | Training | None:
    """Return what `stage` uses."""
    from trainers.demonstrations import in_context_concepts, in_context_text, in_context_vision
    from trainers.objectives import selection

    if stage not in ("learner", "rce", "grpo"):
        tasks = {"concepts": in_context_concepts, "text": in_context_text, "vision": in_context_vision}
        return Loader(tasks[config.task.name].load)
    if stage == "learner" or config.selector.kind != "pointer" or (stage == "grpo" and not config.grpo.enabled):
        return None
    modes: list[str] = [*config.per_shot] or [config.reward.mode]
    rewards: dict[str, RewardFunction] = {mode: formula(f"{mode}_rewards") for mode in modes}
    if stage == "rce":
        return Training(rewards, normalise=selection.position_normalised if config.rce.weights == "position" else None)
    chooses = config.grpo.min_positive_ratio is not None
    return Training(
        rewards,
        advantages=formula(f"{config.grpo.advantage}_advantages"),
        positives=selection.positives if chooses else None,
        trained_queries=selection.trained_queries if chooses else None,
    )
