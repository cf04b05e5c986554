"""From a variant's parts and configuration to its objective."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from trainers.objectives.aggregation import Aggregation
from trainers.objectives.diagnostics import Diagnostics
from trainers.objectives.losses import policy_loss
from trainers.policy.config import ClipRange, PolicyConfig
from trainers.policy.rollout_config import ImportanceWeights

Objective = Callable[..., tuple[Tensor, Diagnostics]]


def build_objective(parts: Mapping[str, Any], config: PolicyConfig) -> Objective:
    """Return `policy_loss` with the variant's parts; call it with logps, old_logps, advantages, mask and `units`."""

    def with_settings(*names: str) -> list[Callable[..., Any]]:
        return [partial(parts[name], **getattr(config, name).model_dump()) for name in names if name in parts]

    return partial(
        policy_loss,
        ratio=parts["ratio"],
        transforms=with_settings("ema_smoothing") + [parts[name] for name in ("one_ratio",) if name in parts],
        weights=with_settings("gradient_adaptive", "temporal_decay"),
        surrogate=partial(parts["surrogate"], **config.surrogate.model_dump(exclude={"kind"})),
        weight_on=config.weight_on,
        aggregation=config.update.aggregation,
    )


def clipped_objective(parts: Mapping[str, Any], clip: ClipRange, aggregation: Aggregation) -> Objective:
    """Return `policy_loss` with a ratio and PPO's clipping, and nothing else of what `build_objective` may add."""
    surrogate = partial(parts["clip"], **clip.model_dump())
    return partial(policy_loss, ratio=parts["ratio"], surrogate=surrogate, aggregation=aggregation)


@dataclass(frozen=True)
class Importance:
    """Weights (N, T) of old log-probabilities, the sampler's and the mask, at most `cap`."""

    weights: Callable[[Tensor, Tensor, Tensor], Tensor]
    cap: float


def build_importance(parts: Mapping[str, Any], settings: ImportanceWeights | None) -> Importance | None:
    """Return what corrects for a sampler that is not the policy; None where nothing does."""
    if settings is None:
        return None
    return Importance(partial(parts["importance"], **settings.model_dump()), settings.cap)
