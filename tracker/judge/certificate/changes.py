"""Changing item values so that their mean moves by a known amount.

An item that is hit takes the largest or the smallest value seen in its subset. Which items are hit is drawn: with
probability p up and q down, so that the expected move of a mean m is p (high - m) - q (m - low).
"""

from collections.abc import Sequence

import numpy as np

from tracker.judge.certificate.pseudo import Runs
from tracker.judge.measurements import Measurements
from tracker.judge.significance import Array

ROOM = 0.8  # of the way from the mean to the end of the range: no change goes further


def change_items(
    values: Array, mean: Array, move: Array, *, volume: float, low: float, high: float, draw: Array
) -> tuple[Array, Array]:
    """Move the mean of `values` [seeds, items] by `move` [seeds], in expectation; return values and their new mean.

    `mean` [seeds] is the mean of what the items are drawn from. `volume` is the wanted mean size of all changes, up and
    down; it is at least |move|. `draw`: uniform numbers [seeds or 1, items]; where seeds share a number, they share
    the change.
    """
    if high <= low:
        return values, mean
    up_room, down_room = np.maximum(high - mean, 1e-12), np.maximum(mean - low, 1e-12)
    wanted = np.maximum(volume, np.abs(move))
    up, down = (wanted + move) / 2, (wanted - move) / 2
    # What would hit more items than there are is taken from both sides, so that the move stays what it is.
    crowded = (up / up_room + down / down_room - 1) / (1 / up_room + 1 / down_room)
    crowded = np.clip(crowded, 0.0, np.minimum(up, down))
    up, down = (up - crowded) / up_room, (down - crowded) / down_room
    changed = np.where(draw < up[:, None], high, np.where(draw > 1 - down[:, None], low, values))
    return changed, (1 - up - down) * mean + up * high + down * low


def sides(study: Measurements, means: Sequence[Array]) -> list[float]:
    """Return the move of each subset's mean that is a gain of one: 1 or -1."""
    direction = study.direction
    if isinstance(direction, dict):
        return [-1.0 if float(np.mean(mean)) >= direction["target"] else 1.0 for mean in means]
    return [1.0 if direction == "max" else -1.0 for _ in means]


def signed_gain(
    study: Measurements, runs: Runs, means: Sequence[Array], amount: float, generator: np.random.Generator
) -> float | None:
    """Return plus or minus `amount`, by chance where both fit into the range of values; None where neither does."""
    first = amount if generator.random() < 0.5 else -amount
    return next((gain for gain in (first, -first) if _fits(study, runs, means, gain)), None)


def _fits(study: Measurements, runs: Runs, means: Sequence[Array], gain: float) -> bool:
    direction = study.direction
    for mean, low, high, side in zip(means, runs.low, runs.high, sides(study, means), strict=True):
        room = high - mean if gain * side > 0 else mean - low
        if (np.abs(gain) > ROOM * room).any():
            return False
        if isinstance(direction, dict):
            distance = -side * (mean - direction["target"])  # of every seed, on the side of their mean
            if (distance <= max(gain, 0.0)).any():
                return False
    return True
