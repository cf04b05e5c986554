"""The GRPO loss of pointer sequences (arXiv 2402.03300): clipped ratio per step, k3 KL to a reference."""

import torch
from torch import Tensor

from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.policy import k3


def grpo_loss(
    logps: Tensor,
    old_logps: Tensor,
    reference_logps: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    kl_coef: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss (a scalar with gradient) and detached diagnostics, averaged over steps, sequences and queries.

    logps: log-probability of each choice under the policy, (Q, N, S), nats. old_logps, reference_logps: the
    same before this epoch's updates and under the RCE policy, without gradient. advantages: one per sequence, (Q, N).
    clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high]. kl_coef: weight of the KL.
    """
    rows = logps.flatten(0, 1)  # the steps of a sequence correspond to the tokens of a response
    ratio = (rows - old_logps.flatten(0, 1)).exp()
    expanded = advantages.flatten()[:, None].expand_as(rows)
    losses, diagnostics = clip_surrogate(ratio, expanded, torch.ones_like(rows), clip_low=clip_low, clip_high=clip_high)

    def mean(values: Tensor) -> Tensor:
        return (values.view_as(logps).mean(-1).sum(-1) / logps.shape[1]).mean()

    policy, kl = mean(losses), mean(k3(rows, reference_logps.flatten(0, 1)))
    clipped = diagnostics["policy/clip_fraction"].value()
    assert clipped is not None  # every query has a sequence
    return policy + kl_coef * kl, {"policy_loss": policy.detach(), "kl": kl.detach(), "clip_fraction": clipped}
