"""Reward-based curriculum: batches that are far from balanced weigh more (versions v8-v10).

Plain numbers go in and come out: the weight is a constant of the loss and carries no gradient.
"""

from collections.abc import Sequence
from typing import Any


def alpha(ss_distance: float, thresholds: Sequence[float], alphas: Sequence[float]) -> float:
    """Strength by the batch's |SS - 0.5|: alphas[0] below both thresholds, alphas[1] between, else alphas[2]."""
    low, high = thresholds
    if ss_distance < low:
        return alphas[0]
    return alphas[1] if ss_distance < high else alphas[2]


def weight(reward: float, strength: float) -> float:
    """1 + strength * max(0, 0.5 - reward); reward in nats, 0.5 being that of a balanced batch. At least 1."""
    return 1.0 + strength * max(0.0, 0.5 - reward)


Phase = tuple[float, Sequence[float], Sequence[float]]


def phases(rcs: Any) -> list[Phase]:
    """All phases of a configuration with `thresholds`, `alphas` and a `schedule` of later ones."""
    first: Phase = (0.0, rcs.thresholds or [], rcs.alphas or [])
    return [first, *((phase.after, phase.thresholds, phase.alphas) for phase in rcs.schedule)]


def active_phase(fraction: float, phases: Sequence[Phase]) -> Phase:
    """The last phase that has begun.

    Args:
        fraction: share of the epochs that has passed: epoch index, from 0, divided by n_epochs.
        phases: (begins at this fraction, thresholds, alphas), ascending, the first beginning at 0.
    """
    return [phase for phase in phases if fraction >= phase[0]][-1]
