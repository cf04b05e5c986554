"""Advantages of responses and tokens."""

import torch
from torch import Tensor

from trainers.objectives.aggregation import decayed_sum, masked_mean


# Group-relative advantages without normalisation: A_ij = R_ij - mean_j R_ij (Dr. GRPO, arXiv 2503.20783).
def relative_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Return rewards (B * G,), the G responses of a prompt side by side, minus the mean of their group: (B * G,).

    A group whose rewards are all equal gets exactly 0, whatever the rounding of its mean.
    """
    groups = rewards.view(-1, group_size)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    return torch.where(equal, 0.0, groups - groups.mean(1, keepdim=True)).view(-1)


# Group-normalised advantages: A_ij = (R_ij - mean_j R_ij) / (std_j R_ij + eps) (GRPO, arXiv 2402.03300).
EPSILON = 1e-8  # verl adds 1e-6 and TRL 1e-4: a difference of one part in ten thousand at a standard deviation of 1


def normalized_advantages(rewards: Tensor, group_size: int, epsilon: float = EPSILON) -> Tensor:
    """Return z-scores (B * G,) of rewards (B * G,) within their groups, by the sample (n - 1) standard deviation.

    verl and TRL use the sample standard deviation too. A group whose rewards are all equal gets exactly 0; a group of
    one has no spread and is an error.
    """
    if group_size < 2:
        raise ValueError(f"group_size = {group_size}: normalised advantages need at least two responses per prompt")
    groups = rewards.view(-1, group_size)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    scores = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + epsilon)
    return torch.where(equal, 0.0, scores).view(-1)


# Group-relative advantages divided by the spread of the whole batch (RL_HAND/gspo/gspo.py, `train_step`).
def batch_normalized_advantages(rewards: Tensor, group_size: int, epsilon: float = EPSILON) -> Tensor:
    """Return rewards (B * G,) minus the mean of their group, over the sample standard deviation of all these: (B * G,).

    Their mean is 0 already. A group whose rewards are all equal gets exactly 0.
    """
    advantages = relative_advantages(rewards, group_size)
    return advantages / (torch.std(advantages) + epsilon)


# Generalised advantage estimation (arXiv 1506.02438, equation 16), as used by PPO on tokens.
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
    next_values = torch.nn.functional.pad(values[:, 1:], (0, 1))
    deltas = (rewards + gamma * next_values - values) * mask
    advantages = decayed_sum(deltas.flip(1), gamma * lam).flip(1)
    return advantages, (advantages + values) * mask


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Return `values` (B, T) with mean 0, sample variance 1 over the tokens of `mask`, 0 elsewhere (as verl does)."""
    count = mask.sum().to(values.dtype)
    centred = values - masked_mean(values, mask)
    variance = masked_mean(centred**2, mask) * count / (count - 1).clamp(min=1.0)
    return centred * torch.rsqrt(variance + 1e-8) * mask.to(values.dtype)
