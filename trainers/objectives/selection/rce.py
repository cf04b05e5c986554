"""Reward-weighted cross-entropy over candidate sequences (RCE): good sequences are imitated more."""

import torch
from torch import Tensor

from trainers.objectives.selection.present import everything


def rce_weights(rewards: Tensor, tau: float, present: Tensor | None = None) -> Tensor:
    """Return softmax(rewards / tau) over a query's sequences, (Q, N) of rewards (Q, N); tau -> 0 picks the best.

    present: (Q, N) bool, the places that hold a sequence; None: all. The others get a weight of 0.
    """
    present = everything(rewards) if present is None else present
    return (rewards / tau).masked_fill(~present, -float("inf")).softmax(-1)


def best_only(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return weights (Q, N): 1 for the sequence of a query with the highest reward, the first of equals, else 0.

    present: (Q, N) bool, the places that hold a sequence; None: all.
    """
    present = everything(rewards) if present is None else present
    best = rewards.masked_fill(~present, -float("inf")).argmax(-1, keepdim=True)
    return torch.zeros_like(rewards).scatter(-1, best, 1.0)


def tau_at(step: int, steps: int, start: float, end: float) -> float:
    """Return the temperature of a step: linear from `start` at step 0 to `end` at the last of `steps`."""
    return start + (end - start) * (step / (steps - 1) if steps > 1 else 1.0)


def smoothed_cross_entropy(step_logps: Tensor, pointers: Tensor, free: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy (Q, N), mean over the steps, of sequences.

    The target of a step is 1 - smoothing on the choice plus smoothing spread evenly over all candidates that are still
    free at that step (the choice among them); masked candidates get none (Szegedy et al., arXiv 1512.00567).

    Args:
        step_logps: (Q, N, S, K) log-probabilities of the candidates at each step.
        pointers: (Q, N, S) int64 choices.
        free: (Q, N, S, K) bool, not chosen at an earlier step.
        smoothing: in [0, 1).
    """
    choice = step_logps.gather(-1, pointers[..., None]).squeeze(-1)
    spread = step_logps.where(free, 0.0).sum(-1) / free.sum(-1)
    return -((1.0 - smoothing) * choice + smoothing * spread).mean(-1)


def rce_loss(weights: Tensor, losses: Tensor) -> Tensor:
    """Return the mean over queries of sum_n weights_n losses_n; both (Q, N)."""
    return (weights * losses).sum(-1).mean()
