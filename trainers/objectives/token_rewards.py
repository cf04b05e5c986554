"""Rewards of tokens instead of responses: the GSPO notes' `USE_SEQUENCE_LEVEL_REWARD = False`, "one reward per token".

The notes do not define them. Here a token's reward is the change that it makes to a reward model's score, so the
rewards of a response add up to its score. Advantages are sums of later rewards relative to the group, as in GRPO's
process supervision (arXiv 2402.03300, 4.1.3).
"""

import torch
from torch import Tensor


def increments(scores: Tensor, mask: Tensor) -> Tensor:
    """Return token rewards (N, T), `r_1 = s_1` and `r_t = s_t - s_{t-1}`; they are 0 outside `mask`.

    The score s_t, of scores (N, T), is that of the text up to token t, so the rewards add up to the last token's score.
    """
    before = torch.nn.functional.pad(scores, (1, 0))[:, :-1]
    return torch.where(mask > 0, scores - before, 0.0)


def returns_to_go(rewards: Tensor, mask: Tensor) -> Tensor:
    """Return, at each token, the sum `sum_{u >= t} r_u` of its reward and all later ones, (N, T); 0 outside `mask`."""
    rewards = torch.where(mask > 0, rewards, 0.0)
    return torch.where(mask > 0, rewards.flip(1).cumsum(1).flip(1), 0.0)


def token_advantages(rewards: Tensor, mask: Tensor, group_size: int, *, scale: bool, epsilon: float = 1e-8) -> Tensor:
    """Return advantages (N, T) of token rewards (N, T), stored group by group; 0 outside `mask`.

    A_it = R_it - mean_j R_jt, where R is the return to go, 0 after a response's end. scale: whether A is divided by the
    sample standard deviation of the group's response rewards, so that A_i1 is the advantage of response i, or by the
    standard deviation of A over the group's tokens if that is larger, so that A stays bounded if response rewards are
    equal; epsilon is added to the divisor.
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
