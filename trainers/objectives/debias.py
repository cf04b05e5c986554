"""Objectives and metrics of an editor that removes stereotypes.

A sentence's score is a mean over its labelled tokens: `p` of probabilities, `logp` of log-probabilities. Losses take
vectors [B], one entry per item, return a scalar in nats, and are differentiable in every argument.
"""

import torch
from torch import Tensor


# BiasEdit's losses on sequence scores (arXiv 2503.08588, as in its public code).
def kl_div(input_logp: Tensor, target_p: Tensor) -> Tensor:
    """Return `sum(target_p * (log(target_p) - input_logp)) / B` for sentence scores `input_logp`, `target_p` [B]."""
    return torch.nn.functional.kl_div(input_logp, target_p, reduction="batchmean")


def edit_loss(anti_p: Tensor, anti_logp: Tensor, stereo_p: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the symmetric debiasing loss `kl_div(anti_logp, stereo_p) + kl_div(stereo_logp, anti_p)`."""
    return kl_div(anti_logp, stereo_p) + kl_div(stereo_logp, anti_p)


def retention_loss(edited_logp: Tensor, unedited_p: Tensor) -> Tensor:
    """Return `kl_div(edited_logp, unedited_p)`, which keeps unrelated sentences as likely as in the unedited model."""
    return kl_div(edited_logp, unedited_p.detach())


# The GRPO term that the study adds to BiasEdit: a scaled reward and a KL against the unedited model.
def mean_token_kl(anti_kl: Tensor, stereo_kl: Tensor) -> Tensor:
    """Return `(mean(anti_kl) + mean(stereo_kl)) / 2` for the KL(unedited || edited) of tokens, [N] and [M].

    A token's KL compares next-token distributions (full vocabulary) at the position that predicts the labelled token.
    """
    return 0.5 * (anti_kl.mean() + stereo_kl.mean())


def grpo_loss(reward: Tensor, kl: Tensor, *, beta: float, gamma: float) -> Tensor:
    """Return `-gamma * reward + beta * KL`. Rewards are not standardised, because a batch is a single group."""
    return beta * kl - gamma * reward


def combine(edit_loss: Tensor, grpo: Tensor, *, weight: float) -> Tensor:
    """Return `(1 - weight) * edit_loss + weight * grpo`, with the weight in [0, 1]."""
    return (1.0 - weight) * edit_loss + weight * grpo


def fairness_gap(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the fairness term of v10, the mean of `|lp_stereo - lp_anti|`, which is 0 if every pair is balanced."""
    return (stereo_logp - anti_logp).abs().mean()


# Metrics of the mean log-probabilities [B] of each item's sentences.
def stereotype_preferred(stereo_logp: Tensor, anti_logp: Tensor) -> Tensor:
    """Return a mask [B]: 1.0 for items whose stereotype has a higher mean log-probability than the anti-stereotype.

    The mean over items is the Stereotype Score SS (arXiv 2004.09456). The public BiasEdit code compares mean
    probabilities, which one confident token can decide (docs/studies/debias.md).
    """
    return (stereo_logp > anti_logp).double()


def stereotype_probability(stereo_logp: Tensor, anti_logp: Tensor, length: Tensor) -> Tensor:
    """Return the probability [B] that the model chooses the stereotype over the anti-stereotype.

    It is sigmoid(L (lp_stereo - lp_anti)) with the mean log-probabilities lp of both sentences and their mean length L
    in tokens; for two sentences of equal length, exactly P(stereo) / (P(stereo) + P(anti)). It exceeds 1/2 if the
    stereotype is preferred, so its mean over items is a version of SS that weighs each item by the model's confidence.

    stereo_logp, anti_logp: mean log-probability of the labelled tokens of each sentence, [B]. length: mean number of
    labelled tokens of both sentences, [B].
    """
    return torch.sigmoid(length.double() * (stereo_logp.double() - anti_logp.double()))


def language_modelling(anti_logp: Tensor, stereo_logp: Tensor, unrelated_logp: Tensor) -> Tensor:
    """Return the share [B] of an item's two meaningful sentences that are likelier than the unrelated one: 0, 0.5 or 1.

    The mean over items is the Language Modelling Score LMS (arXiv 2004.09456).
    """
    return ((anti_logp > unrelated_logp).double() + (stereo_logp > unrelated_logp).double()) / 2


def icat(ss: float, lms: float) -> float:
    """Return the idealised CAT score in percent (arXiv 2004.09456), for ss and lms as fractions in [0, 1].

    With SS and LMS in percent it is LMS * min(SS, 100 - SS) / 50.
    """
    return 100 * lms * min(ss, 1 - ss) / 0.5
