"""Reward-based curriculum of `debias`: unbalanced batches have larger weights in the loss (versions v8-v10).

Weights are plain numbers without gradient. This module does not import torch, because the planner calls it too.
"""

from collections.abc import Sequence
from typing import Any


def rcs_alpha(ss_distance: float, thresholds: Sequence[float], alphas: Sequence[float]) -> float:
    """Return alphas[0] if `ss_distance`, |SS - 0.5|, is below both thresholds, alphas[1] if between, else alphas[2]."""
    low, high = thresholds
    if ss_distance < low:
        return alphas[0]
    return alphas[1] if ss_distance < high else alphas[2]


def rcs_weight(reward: float, strength: float) -> float:
    """Return `1 + strength * max(0, 0.5 - reward)`; the reward is in nats, and 0.5 for a balanced batch."""
    return 1.0 + strength * max(0.0, 0.5 - reward)


Phase = tuple[float, Sequence[float], Sequence[float]]


def rcs_phases(rcs: Any) -> list[Phase]:
    """Return all phases of a configuration: first its `thresholds` and `alphas`, then those of its `schedule`."""
    first: Phase = (0.0, rcs.thresholds, rcs.alphas)
    return [first, *((phase.after, phase.thresholds, phase.alphas) for phase in rcs.schedule)]


def active_rcs_phase(fraction: float, phases: Sequence[Phase]) -> Phase:
    """Return the last phase that has begun at this fraction of training (epoch index, from 0, divided by n_epochs).

    phases: (fraction at which it begins, thresholds, alphas), in increasing order from fraction 0.
    """
    return [phase for phase in phases if fraction >= phase[0]][-1]


def rcs_alpha_at(rcs: Any, ss_distance: float, fraction: float) -> float:
    """Return the strength for a batch's |SS - 0.5| in the phase that is active at this fraction of training."""
    _, thresholds, alphas = active_rcs_phase(fraction, rcs_phases(rcs))
    return rcs_alpha(ss_distance, thresholds, alphas)
