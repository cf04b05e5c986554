"""Generalised advantage estimation (arXiv 1506.02438, equation 16), as used by PPO on tokens."""

import torch
from torch import Tensor

from trainers.objectives.losses.aggregation import masked_mean


def terminal_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Return token rewards (B, T) that are 0 but for the response's reward (B,) at its last token."""
    last = mask.to(torch.long).sum(-1).clamp(min=1) - 1
    return torch.zeros(mask.shape, dtype=rewards.dtype, device=rewards.device).scatter(
        1, last[:, None], rewards[:, None]
    )


def gae(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Return advantages (B, T) and returns (B, T) of token rewards (B, T) and values (B, T); 0 outside `mask`.

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lam A_{t+1};  return_t = A_t + V_t. A response is one
    run of tokens from position 0; after its last token value and advantage are 0.
    """
    mask = mask.to(values.dtype)
    values = values * mask
    advantage = torch.zeros_like(values[:, 0])
    next_value = torch.zeros_like(advantage)
    columns = []
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = (delta + gamma * lam * advantage) * mask[:, t]
        next_value = values[:, t]
        columns.append(advantage)
    advantages = torch.stack(columns[::-1], dim=1)
    return advantages, (advantages + values) * mask


def whiten(values: Tensor, mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Return `values` (B, T) with mean 0, sample variance 1 over the tokens of `mask`, 0 elsewhere (as verl does)."""
    count = mask.sum().to(values.dtype)
    centred = values - masked_mean(values, mask)
    variance = masked_mean(centred**2, mask) * count / (count - 1).clamp(min=1.0)
    return centred * torch.rsqrt(variance + epsilon) * mask.to(values.dtype)
