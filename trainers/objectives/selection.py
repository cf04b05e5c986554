"""Objectives of policies that choose demonstrations."""

import torch
from torch import Tensor


# Each of Q queries has the same number N >= 2 of sequences.
def positions(values: Tensor, *, descending: bool) -> Tensor:
    """Return the ranks (Q, N), from 0, of values (Q, N) within their sorted rows; equal values keep their order."""
    order = values.argsort(dim=-1, descending=descending, stable=True)
    return order.argsort(dim=-1).to(values.dtype)


# Reward-weighted cross-entropy over candidate sequences (RCE): good sequences are imitated more.
def rce_weights(rewards: Tensor, tau: float) -> Tensor:
    """Return the weights (Q, N), `softmax(rewards / tau)` over each query's sequences; tau -> 0 selects the best."""
    return (rewards / tau).softmax(-1)


def best_only(rewards: Tensor) -> Tensor:
    """Return weights (Q, N): 1 for the first sequence with a query's highest reward, 0 for all other sequences."""
    return torch.zeros_like(rewards).scatter(-1, rewards.argmax(-1, keepdim=True), 1.0)


def tau_at(step: int, steps: int, start: float, end: float) -> float:
    """Return the temperature of a step, which changes linearly from `start` at step 0 to `end` at the last step."""
    return start + (end - start) * (step / (steps - 1) if steps > 1 else 1.0)


def smoothed_cross_entropy(step_logps: Tensor, pointers: Tensor, free: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy (Q, N) of sequences, averaged over the steps of each sequence.

    The target of a step is 1 - smoothing for the choice, plus smoothing spread evenly over all candidates that are free
    at that step, including the choice (Szegedy et al., arXiv 1512.00567).

    step_logps: (Q, N, S, K) log-probabilities of the candidates at each step. pointers: (Q, N, S) int64 choices. free:
    (Q, N, S, K) bool, not chosen at an earlier step. smoothing: in [0, 1).
    """
    choice = step_logps.gather(-1, pointers[..., None]).squeeze(-1)
    smooth = step_logps.where(free, 0.0).sum(-1) / free.sum(-1)
    return -((1.0 - smoothing) * choice + smoothing * smooth).mean(-1)


def rce_loss(weights: Tensor, losses: Tensor) -> Tensor:
    """Return the mean over queries of `sum_n (weights_n * losses_n)`, with weights and losses (Q, N)."""
    return (weights * losses).sum(-1).mean()


# Ranks as rewards, ties by position: `compute_rce_loss` of `pointer_selector_v3.py` (demonstrations notes, cause 3).
def position_normalised(rewards: Tensor) -> Tensor:
    """Return `rank / (n - 1)`, (Q, N), for rewards (Q, N): 0 for the worst of a query's n sequences, 1 for the best.

    All queries then get the same weights, which the demonstrations notes criticise. As in the source, the last of equal
    rewards gets the largest value, whereas `position_advantages` prefers the first.
    """
    return positions(rewards, descending=False) / (rewards.shape[-1] - 1)


# Conditional training: queries with too few positive sequences give no loss (the demonstrations notes, scheme 4).
def positives(rewards: Tensor, correct: Tensor, threshold: float | None) -> Tensor:
    """Return a mask (Q, N) of the positive sequences.

    threshold: reward above which a sequence is positive, as in the source; None: correct sequences are positive.
    """
    return correct >= 1 if threshold is None else rewards > threshold


def trained_queries(positive: Tensor, min_positive_ratio: float) -> Tensor:
    """Return a mask (Q,) of the queries whose share of positive sequences is at least `min_positive_ratio`."""
    return positive.sum(-1).double() / positive.shape[-1] >= min_positive_ratio - 1e-12
