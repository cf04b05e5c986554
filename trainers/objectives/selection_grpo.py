"""The GRPO loss of pointer sequences (arXiv 2402.03300): clipped ratio per step, k3 KL to a reference."""

import torch
from torch import Tensor

from trainers.objectives.clipped import surrogate
from trainers.objectives.kl import k3


def grpo_loss(
    logps: Tensor, old_logps: Tensor, reference_logps: Tensor, advantages: Tensor, *, clip: float, beta: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss (a scalar with gradient) and detached diagnostics.

    Args:
        logps: log-probability of each choice under the policy, (Q, N, S), nats.
        old_logps: the same before this epoch's updates, without gradient.
        reference_logps: the same under the RCE policy, without gradient.
        advantages: one per sequence, (Q, N).
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        beta: weight of the KL.
    """
    rows = logps.flatten(0, 1)  # a step of a sequence is what a token is elsewhere
    mask = torch.ones_like(rows)
    ratio = (rows - old_logps.flatten(0, 1)).exp()
    expanded = advantages.flatten()[:, None].expand_as(rows)
    losses, diagnostics = surrogate(ratio, expanded, mask, low=clip, high=clip)
    kl = k3(rows, reference_logps.flatten(0, 1))
    loss = (losses + beta * kl).mean()
    figures = {"policy_loss": losses.mean().detach(), "kl": kl.mean().detach()}
    clipped = diagnostics["policy/clip_fraction"].value()
    return loss, figures if clipped is None else figures | {"clip_fraction": clipped}
