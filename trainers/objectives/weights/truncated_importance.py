"""Truncated importance weights between the sampler and the policy before the update (TIS).

Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training": an engine that rounds
otherwise than the trainer samples from another policy than the one that is updated.
"""

from typing import Literal

import torch
from torch import Tensor

BOUND = 20.0  # of a logarithm: e^20 is far above any cap


def importance_weights(
    old_logps: Tensor, sampled_logps: Tensor, mask: Tensor, *, cap: float, level: Literal["token", "sequence"]
) -> Tensor:
    """Return min(pi_old / pi_sampler, cap), (B, T), without gradient; 0 at padding.

    Args:
        old_logps: log-probabilities of the policy before the update, (B, T), nats.
        sampled_logps: those that the sampler gave, (B, T).
        mask: 1 at the tokens of the responses, (B, T).
        cap: largest weight.
        level: token: each token has its own (verl `rollout_is: token`, TRL `token_truncate`); sequence: all tokens of a
            response have the product of theirs (verl `sequence`, TRL `sequence_truncate`).
    """
    mask = mask.to(old_logps.dtype)
    difference = torch.where(mask > 0, old_logps - sampled_logps, 0.0).detach()
    if level == "sequence":
        difference = difference.sum(-1, keepdim=True)
    return difference.clamp(-BOUND, BOUND).exp().clamp(max=cap) * mask
