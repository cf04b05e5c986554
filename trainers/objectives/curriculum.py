"""Reward-based curriculum of `debias`: batches that are far from balanced weigh more (versions v8-v10).

Plain numbers go in and come out: the weight is a constant of the loss and carries no gradient. No torch: the planner
asks these functions too.
"""

from collections.abc import Sequence
from typing import Any


def rcs_alpha(ss_distance: float, thresholds: Sequence[float], alphas: Sequence[float]) -> float:
    """Strength by the batch's |SS - 0.5|: alphas[0] below both thresholds, alphas[1] between, else alphas[2]."""
    low, high = thresholds
    if ss_distance < low:
        return alphas[0]
    return alphas[1] if ss_distance < high else alphas[2]


def rcs_weight(reward: float, strength: float) -> float:
    """1 + strength * max(0, 0.5 - reward); reward in nats, 0.5 being that of a balanced batch. At least 1."""
    return 1.0 + strength * max(0.0, 0.5 - reward)


Phase = tuple[float, Sequence[float], Sequence[float]]


def rcs_phases(rcs: Any) -> list[Phase]:
    """All phases of a configuration with `thresholds`, `alphas` and a `schedule` of later ones."""
    first: Phase = (0.0, rcs.thresholds, rcs.alphas)
    return [first, *((phase.after, phase.thresholds, phase.alphas) for phase in rcs.schedule)]


def active_rcs_phase(fraction: float, phases: Sequence[Phase]) -> Phase:
    """The last phase that has begun after this fraction of the epochs (epoch index, from 0, divided by n_epochs).

    phases: (begins at this fraction, thresholds, alphas), ascending, the first beginning at 0.
    """
    return [phase for phase in phases if fraction >= phase[0]][-1]


def rcs_alpha_at(rcs: Any, ss_distance: float, fraction: float) -> float:
    """Return the strength by the batch's |SS - 0.5| in the phase of the curriculum at this share of the epochs."""
    _, thresholds, alphas = active_rcs_phase(fraction, rcs_phases(rcs))
    return rcs_alpha(ss_distance, thresholds, alphas)
