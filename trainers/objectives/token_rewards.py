"""Rewards of tokens instead of responses: the GSPO notes' `USE_SEQUENCE_LEVEL_REWARD = False`, "one reward per token".

The source does not say where they come from. Here a token's reward is how much it raises a reward model's score, so
that the rewards of a response add up to the score of the whole, and only the credit is dealt out differently.
Advantages are rewards to come relative to the group, as in GRPO's process supervision (arXiv 2402.03300, 4.1.3).
"""

import torch
from torch import Tensor


def increments(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the rewards (N, T) of tokens from the scores (N, T) of the texts that end with them; 0 outside `mask`.

    r_1 = s_1, r_t = s_t - s_{t-1}: they add up to the score at the last token.
    """
    before = torch.nn.functional.pad(scores, (1, 0))[:, :-1]
    return torch.where(mask > 0, scores - before, 0.0)


def returns_to_go(rewards: Tensor, mask: Tensor) -> Tensor:
    """Return sum_{u >= t} r_u for rewards (N, T), the tokens of a response from position 0; 0 outside `mask`."""
    rewards = torch.where(mask > 0, rewards, 0.0)
    return torch.where(mask > 0, rewards.flip(1).cumsum(1).flip(1), 0.0)


def token_advantages(rewards: Tensor, mask: Tensor, group_size: int, *, scale: bool, epsilon: float = 1e-8) -> Tensor:
    """Return advantages (N, T) of token rewards (N, T), the responses of a prompt side by side; 0 outside `mask`.

    A_it = R_it - mean_j R_jt, where R is the return to go and 0 after a response's end. scale: also divided by the
    sample standard deviation of the group's whole rewards, plus epsilon, so that at t = 1 they are the advantages of
    responses; but at least by that of A over the group's tokens, so that they stay bounded where whole rewards tie.
    """
    to_go = returns_to_go(rewards, mask)
    groups = to_go.view(-1, group_size, to_go.shape[1])
    advantages = groups - groups.mean(1, keepdim=True)
    if scale:
        inside = (mask > 0).view_as(groups)
        squares = torch.where(inside, advantages, 0.0).square().sum((1, 2), keepdim=True)
        token_std = (squares / (inside.sum((1, 2), keepdim=True) - 1).clamp(min=1)).sqrt()
        reward_std = groups[:, :, :1].std(1, keepdim=True)
        advantages = advantages / (torch.maximum(reward_std, token_std) + epsilon)
    return torch.where(mask > 0, advantages.view_as(to_go), 0.0)
