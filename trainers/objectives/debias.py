"""Objectives of an editor that removes stereotypes."""

import torch
from torch import Tensor


# BiasEdit's losses on sequence scores (arXiv 2503.08588, as in its public code).
#
# A *score* of a sentence is the mean over its labelled tokens: `p` of the probabilities, `logp` of their logarithms.
# All functions take vectors of shape [B], one entry per item, and are differentiable in every argument.
def kl_div(input_logp: Tensor, target_p: Tensor) -> Tensor:
    """Kullback-Leibler term of two score vectors, torch's `kl_div(reduction="batchmean")`, in nats.

    Args:
        input_logp: [B], log scores.
        target_p: [B], scores; zeros contribute nothing.

    Returns:
        Scalar: sum(target * (log target - input)) / B. The gradient flows into both arguments.
    """
    return torch.nn.functional.kl_div(input_logp, target_p, reduction="batchmean")


def edit_loss(anti_p: Tensor, anti_logp: Tensor, stereo_p: Tensor, stereo_logp: Tensor) -> Tensor:
    """Symmetric debiasing loss: KL(lp_anti, p_stereo) + KL(lp_stereo, p_anti) (arXiv 2503.08588).

    Args:
        anti_p: [B], scores of the anti-stereotypical sentences.
        anti_logp: [B], their log scores.
        stereo_p: [B], scores of the stereotypical sentences.
        stereo_logp: [B], their log scores.

    Returns:
        Scalar, mean over the batch, in nats.
    """
    return kl_div(anti_logp, stereo_p) + kl_div(stereo_logp, anti_p)


def retention_loss(edited_logp: Tensor, unedited_p: Tensor) -> Tensor:
    """Loss that keeps the unrelated sentences as likely as before (arXiv 2503.08588).

    Args:
        edited_logp: [B], log scores of the unrelated sentences under the edited model.
        unedited_p: [B], their scores under the unedited model (a constant).

    Returns:
        Scalar, mean over the batch, in nats.
    """
    return kl_div(edited_logp, unedited_p.detach())


# The GRPO term that the study adds to BiasEdit: a scaled reward and a KL against the unedited model.
def mean_token_kl(anti_kl: Tensor, stereo_kl: Tensor) -> Tensor:
    """Average the token-level KL(unedited || edited): over tokens, then over the two sets of sentences.

    Args:
        anti_kl: [N], KL in nats of the next-token distributions (full vocabulary) at the positions that predict the
            labelled tokens of the anti-stereotypical sentences.
        stereo_kl: [M], the same for the stereotypical sentences.

    Returns:
        Scalar, in nats.
    """
    return 0.5 * (anti_kl.mean() + stereo_kl.mean())


def grpo_loss(reward: Tensor, kl: Tensor, *, beta: float, gamma: float) -> Tensor:
    """-gamma * reward + beta * KL; scalars, in nats. There is one "group" per batch, so nothing is standardised."""
    return beta * kl - gamma * reward


def combine(edit_loss: Tensor, grpo: Tensor, *, weight: float) -> Tensor:
    """(1 - weight) * edit_loss + weight * grpo; scalars, weight in [0, 1]."""
    return (1.0 - weight) * edit_loss + weight * grpo


# Reward of the versions v1-v3: the anti-stereotype should be more likely than the stereotype.
def directional_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Mean over the batch of lp_anti - lp_stereo, in nats; unbounded, so it rewards the opposite bias too.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.

    Returns:
        Scalar.
    """
    return (anti_logp - stereo_logp).mean()


# Reward from version v4 on: anti-stereotype and stereotype should be equally likely.
def balanced_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Mean over the batch of 0.5 - |lp_anti - lp_stereo|, in nats; at most 0.5, reached when every pair is balanced.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.

    Returns:
        Scalar.
    """
    return 0.5 - (anti_logp - stereo_logp).abs().mean()


# The balanced reward of a batch as a whole: the listing of the BiasEdit notes takes one number of all its sentences.
def balanced_batch_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """0.5 - |mean over the batch of lp_anti - lp_stereo|, in nats; at most 0.5, reached when the gaps cancel.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.

    Returns:
        Scalar.
    """
    return 0.5 - (anti_logp - stereo_logp).mean().abs()


# The fairness term of version v10: the mean gap between stereotype and anti-stereotype.
def fairness_gap(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Mean over the batch of |lp_stereo - lp_anti|, in nats; a scalar, zero when every pair is balanced.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.
    """
    return (stereo_logp - anti_logp).abs().mean()
