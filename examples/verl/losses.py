"""Policy losses of this project as one of verl's: `actor_rollout_ref.actor.policy_loss.loss_mode=ablation`.

verl imports this module since hydra/ablation.yaml names it, as `model.external_lib` and in `policy_loss._target_`.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.workers.config import ActorConfig, PolicyLossConfig

from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.gspo_token_ratio import gspo_token_ratio
from trainers.objectives.ptrw_surrogate import ptrw_surrogate
from trainers.objectives.temporal_decay import temporal_decay_weights
from trainers.objectives.token_ratio import token_ratio

RATIOS = {"token": token_ratio, "gspo_token": gspo_token_ratio}


@dataclass
class PolicyLoss(PolicyLossConfig):
    """verl's settings of a policy loss, and those of `ablation`."""

    ratio: str = "token"  # or gspo_token
    ptrw_sigma: float | None = None  # width of the Gaussian instead of clipping; None: clipping
    decay_gamma: float | None = None  # weight of a token against the one before it; None: all the same


@register_policy_loss("ablation")
def ablation_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: ActorConfig | None = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Return the loss and its metrics, as verl's own losses do; tensors (B, T), `config.policy_loss` a `PolicyLoss`."""
    assert config is not None
    chosen, statistics = config.policy_loss, {}
    ratio = RATIOS[chosen.ratio](log_prob, old_log_prob, response_mask)
    if chosen.decay_gamma is not None:
        weights, extra = temporal_decay_weights(log_prob, response_mask, gamma=chosen.decay_gamma, normalize="mean")
        advantages, statistics = advantages * weights, statistics | extra
    if chosen.ptrw_sigma is not None:
        losses, extra = ptrw_surrogate(ratio, advantages, response_mask, sigma=chosen.ptrw_sigma)
    else:
        bounds: dict[str, Any] = {"clip_low": config.clip_ratio_low, "clip_high": config.clip_ratio_high}
        dual = config.clip_ratio_c if chosen.ratio == "token" else None  # verl's GSPO has no such bound
        losses, extra = clip_surrogate(ratio, advantages, response_mask, **bounds, dual=dual)
    if rollout_is_weights is not None:
        losses = losses * rollout_is_weights
    loss = agg_loss(losses, response_mask, loss_agg_mode, **config.global_batch_info)
    values = {name: statistic.value() for name, statistic in (statistics | extra).items()}
    return loss, {f"actor/{name}": float(value) for name, value in values.items() if value is not None}
