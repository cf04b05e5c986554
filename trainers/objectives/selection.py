"""Rewards, advantages and losses of policies that choose demonstrations; "the notes" are the source of that study."""

import torch
from torch import Tensor


# A query has N >= 2 sequences, as many as the others.
def positions(values: Tensor, *, descending: bool) -> Tensor:
    """Return the place of each value in its sorted row, from 0, (Q, N); the first of equals comes first."""
    order = values.argsort(dim=-1, descending=descending, stable=True)
    return order.argsort(dim=-1).to(values.dtype)


# Reward-weighted cross-entropy over candidate sequences (RCE): good sequences are imitated more.
def rce_weights(rewards: Tensor, tau: float) -> Tensor:
    """Return softmax(rewards / tau) over a query's sequences, (Q, N) of rewards (Q, N); tau -> 0 picks the best."""
    return (rewards / tau).softmax(-1)


def best_only(rewards: Tensor) -> Tensor:
    """Return weights (Q, N): 1 for the sequence of a query with the highest reward, the first of equals, else 0."""
    return torch.zeros_like(rewards).scatter(-1, rewards.argmax(-1, keepdim=True), 1.0)


def tau_at(step: int, steps: int, start: float, end: float) -> float:
    """Return the temperature of a step: linear from `start` at step 0 to `end` at the last of `steps`."""
    return start + (end - start) * (step / (steps - 1) if steps > 1 else 1.0)


def smoothed_cross_entropy(step_logps: Tensor, pointers: Tensor, free: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy (Q, N), mean over the steps, of sequences.

    The target of a step is 1 - smoothing on the choice plus smoothing spread evenly over all candidates that are still
    free at that step (the choice among them); masked candidates get none (Szegedy et al., arXiv 1512.00567).

    step_logps: (Q, N, S, K) log-probabilities of the candidates at each step. pointers: (Q, N, S) int64 choices. free:
    (Q, N, S, K) bool, not chosen at an earlier step. smoothing: in [0, 1).
    """
    choice = step_logps.gather(-1, pointers[..., None]).squeeze(-1)
    smooth = step_logps.where(free, 0.0).sum(-1) / free.sum(-1)
    return -((1.0 - smoothing) * choice + smoothing * smooth).mean(-1)


def rce_loss(weights: Tensor, losses: Tensor) -> Tensor:
    """Return the mean over queries of sum_n weights_n losses_n; both (Q, N)."""
    return (weights * losses).sum(-1).mean()


# Ranks as rewards, ties by position: `compute_rce_loss` of `pointer_selector_v3.py` (the notes, cause 3).
def position_normalised(rewards: Tensor) -> Tensor:
    """Return 0 for the worst of a query's n sequences, 1 for the best, rank / (n - 1), (Q, N) of (Q, N).

    So all queries get the same weights, which is what the notes criticise. The seed sorts in ascending order here, so
    that the last of equal rewards has the highest rank, where in its advantages the first has.
    """
    return positions(rewards, descending=False) / (rewards.shape[-1] - 1)


# Conditional training: queries with too few positive sequences give no loss (the notes, scheme 4).
def positives(rewards: Tensor, correct: Tensor, threshold: float | None) -> Tensor:
    """Return which sequences are positive, (Q, N) bool.

    threshold: as in the source, those whose reward exceeds it; None: those after which the answer is right.
    """
    return correct >= 1 if threshold is None else rewards > threshold


def trained_queries(positive: Tensor, min_positive_ratio: float) -> Tensor:
    """Return whether a query's share of positive sequences reaches `min_positive_ratio`, (Q,) bool.

    The bound itself is enough: 2 of 10 reach 0.2.
    """
    return positive.sum(-1).double() / positive.shape[-1] >= min_positive_ratio - 1e-12
