"""The losses of a policy and of its critic; the entropy of a policy and its divergence from a reference."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from trainers.objectives.aggregation import Aggregation, aggregate
from trainers.objectives.diagnostics import Diagnostics, Maximum, Mean, Reduction, Variance

# The policy loss of one batch, put together from a ratio, its transforms, token weights and a surrogate.
Ratio = Callable[[Tensor, Tensor, Tensor], Tensor]  # logps, old_logps, mask -> ratio, all (B, T)
Transform = Callable[[Tensor, Tensor], tuple[Tensor, Diagnostics]]  # ratio, mask -> ratio
Weights = Callable[[Tensor, Tensor], tuple[Tensor, Diagnostics]]  # logps, mask -> token weights
Surrogate = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Diagnostics]]  # ratio, advantages, mask -> loss


def policy_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    ratio: Ratio,
    surrogate: Surrogate,
    transforms: Sequence[Transform] = (),
    weights: Sequence[Weights] = (),
    weight_on: Literal["advantage", "ratio"] = "advantage",
    aggregation: Aggregation = "sequence_mean",
    units: float | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return the loss to minimise (a scalar with gradient) and diagnostics that join with those of other parts.

    logps, old_logps: log-probabilities (B, T) of the response's tokens in nats, under the policy and, without gradient,
        under the one that sampled them.
    advantages: per response (B,) or per token (B, T). mask: (B, T), 1 at tokens of the response.
    ratio: importance ratio of tokens or responses.
    surrogate: per-token loss of ratio and advantage (clipped, asymmetric, PTRW).
    transforms: applied to the ratio in order (EMA smoothing, arithmetic sequence ratio).
    weights: of tokens, multiplied together; constants for the gradient.
    weight_on: what they multiply: the advantage, so that the clipped quantity stays the importance ratio, or the ratio
        before it is clipped.
    aggregation: how tokens become one number.
    units: divisor of a minibatch of which this batch is a part; see `aggregate`.

    Diagnostics of every variant: `ratio/mean`, `ratio/max`; `ratio/token_variance` (of w_t), `ratio/used_variance` (of
    what the surrogate gets) and `ratio/variance_reduction` = 1 - used / token (undefined while w is 1 everywhere);
    `policy/approx_kl`, the mean of old_logps - logps (the k1 estimator of KL(old || new)).
    """
    advantages = advantages[:, None].expand_as(logps) if advantages.dim() == 1 else advantages
    used = ratio(logps, old_logps, mask)
    diagnostics: Diagnostics = {}
    for transform in transforms:
        used, extra = transform(used, mask)
        diagnostics |= extra
    for weigh in weights:
        weight, extra = weigh(logps, mask)
        diagnostics |= extra
        if weight_on == "ratio":
            used = used * weight.detach()
        else:
            advantages = advantages * weight.detach()
    diagnostics |= _ratio_diagnostics(logps, old_logps, used, mask)
    losses, extra = surrogate(used, advantages, mask)
    return aggregate(losses, mask, aggregation, units=units), diagnostics | extra


def _ratio_diagnostics(logps: Tensor, old_logps: Tensor, used: Tensor, mask: Tensor) -> Diagnostics:
    token = (logps - old_logps).exp()
    return {
        "ratio/mean": Mean.of(used, mask),
        "ratio/max": Maximum.of(used, mask),
        "ratio/token_variance": Variance.of(token, mask),
        "ratio/used_variance": Variance.of(used, mask),
        "ratio/variance_reduction": Reduction.of(token, used, mask),
        "policy/approx_kl": Mean.of(old_logps - logps, mask),
    }


# The loss of PPO's critic.
def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float,
    units: float | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return 0.5 mean max((v - R)^2, (clip(v, v_old - clip, v_old + clip) - R)^2); all tensors (B, T).

    As in OpenAI's PPO and verl's `compute_value_loss`. Diagnostics: share of clipped tokens, explained variance
    1 - var(R - v) / var(R), undefined where all returns are equal.
    """
    bounded = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    plain, clipped = (values - returns) ** 2, (bounded - returns) ** 2
    loss = 0.5 * aggregate(torch.maximum(plain, clipped), mask, "token_mean", units=units)
    diagnostics: Diagnostics = {
        "value/clip_fraction": Mean.of(clipped > plain, mask),
        "value/explained_variance": Reduction.of(returns, returns - values, mask),
    }
    return loss, diagnostics


# Entropy of the policy's next-token distribution.
def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy -sum_v p_v log p_v of logits (..., V): (...), nats; exact, not the estimate -log p(y_t)."""
    return torch.logsumexp(logits, -1) - (logits.softmax(-1) * logits).sum(-1)


# Kullback-Leibler divergence to the reference policy.
def k3(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token: r - log r - 1, r = reference / policy; (B, T), nats.

    Never negative, unbiased under the policy's own samples (Schulman 2020, "Approximating KL divergence"; GRPO, arXiv
    2402.03300, equation 4). verl's `low_var_kl` is this, bounded at 10. TRL multiplies it by the importance ratio, with
    gradient (`use_bias_correction_kl`, true by default since 1.16; DeepSeek-V3.2, arXiv 2512.02556); false gives this.
    """
    difference = (reference_logps - logps).clamp(-20.0, 20.0)
    return difference.exp() - difference - 1


def k1(logps: Tensor, reference_logps: Tensor) -> Tensor:
    """Return the estimate log(policy / reference), (B, T): unbiased, of either sign.

    Its gradient under the policy's own samples is 0 in the mean: in a loss it does not hold the policy.
    """
    return logps - reference_logps


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k3": k3}


def adapt_coefficient(coefficient: float, mean_kl: float, *, target: float) -> float:
    """Return the next coefficient: times 1.5 above 2 target, times 0.5 below target / 2, kept within [0.01, 1].

    The three-band rule of PPO's adaptive penalty (arXiv 1707.06347, section 4) with GSPO's factors and bounds (the GSPO
    notes).
    """
    if mean_kl > 2 * target:
        coefficient *= 1.5
    elif mean_kl < 0.5 * target:
        coefficient *= 0.5
    return min(max(coefficient, 0.01), 1.0)
