"""From a variant's configuration to its objective: loads exactly the modules that the variant uses."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor

from trainers.objectives.diagnostics.statistics import Diagnostics
from trainers.objectives.losses.aggregation import Aggregation
from trainers.objectives.losses.policy_loss import policy_loss
from trainers.policy import choices
from trainers.policy.config import OBJECTIVES, Clip, PolicyConfig
from trainers.policy.rollout_config import ImportanceWeights

Objective = Callable[..., tuple[Tensor, Diagnostics]]


def build_objective(config: PolicyConfig) -> Objective:
    """Return `policy_loss` with the variant's parts; call it with logps, old_logps, advantages, mask and `units`."""
    loss = choices.surrogate(config)
    bounds = config.clip if loss == "clipped" else getattr(config, loss)
    return partial(
        policy_loss,
        ratio=_load(f"ratios.{config.ratio}").importance_ratio,
        transforms=[
            _bind(_load(f"ratios.{name}").transform, getattr(config, name, None)) for name in choices.transforms(config)
        ],
        weights=[
            _bind(_load(f"weights.{name}").token_weights, getattr(config, name))
            for name in ("gradient_adaptive", "temporal_decay")
            if getattr(config, name) is not None
        ],
        surrogate=_bind(_load(f"losses.{loss}").surrogate, bounds),
        weight_on=config.weight_on,
        aggregation=config.update.aggregation,
    )


def clipped_objective(ratio: str, clip: Clip, aggregation: Aggregation) -> Objective:
    """Return `policy_loss` with a ratio and PPO's clipping, and nothing else of what `build_objective` may add."""
    return partial(
        policy_loss,
        ratio=_load(f"ratios.{ratio}").importance_ratio,
        surrogate=_bind(_load("losses.clipped").surrogate, clip),
        aggregation=aggregation,
    )


@dataclass(frozen=True)
class Importance:
    """Weights (N, T) of old log-probabilities, the sampler's and the mask, at most `cap`."""

    weights: Callable[[Tensor, Tensor, Tensor], Tensor]
    cap: float


def build_importance(settings: ImportanceWeights | None) -> Importance | None:
    """Return what corrects for a sampler that is not the policy; None where nothing does."""
    if settings is None:
        return None
    return Importance(_bind(_load("weights.truncated_importance").importance_weights, settings), settings.cap)


def _load(name: str) -> Any:
    return import_module(f"{OBJECTIVES}.{name}")


def _bind(function: Callable[..., Any], settings: Any) -> Callable[..., Any]:
    """Return `function` with the fields of a settings model as keyword arguments; a flag or nothing has none."""
    return partial(function, **settings.model_dump()) if hasattr(settings, "model_dump") else function
