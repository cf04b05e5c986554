"""One new run against the runs that we have: does it lie below what they predict?

A new run is compared with the prediction interval of the past ones, so a false alarm has the stated probability however
few runs there are. Hand-made thresholds do not have this property: docs/explanation/evidence.md shows how often each of
them fails.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

ALARM = 0.10
"""Chance that a run without any change asks for reruns, over all watched metrics together."""
CONFIRM = 0.05
"""Level at which the mean of the reruns alone must be outside the prediction interval."""
MIN_RUNS = 5
RERUNS = 2

_ROUNDING = 1e-6  # values that differ less, relative to their mean, are the same run in float32

Outcome = Literal["passed", "undecided", "worse"]
Direction = Literal["max", "min", "both"]
"""Which values are better: `max` watches for a fall, `min` for a rise, `both` for either."""


@dataclass(frozen=True)
class Watched:
    """The answer for one metric.

    Attributes:
        outcome: passed, undecided (reruns or past runs are missing) or worse.
        why: one sentence.
        value: of the new run; once there are reruns that decide, their mean.
        mean, sd, runs: of the past runs.
        low, high: bounds of the prediction interval that was used; infinite if it is not watched.
        p: of the value under the past runs, times the number of watched metrics (Bonferroni), at most 1.
    """

    metric: str
    direction: Direction
    outcome: Outcome
    why: str
    value: float
    mean: float
    sd: float
    runs: int
    low: float
    high: float
    p: float


def watch(metric: str, direction: Direction, past: Sequence[float], new: Sequence[float], metrics: int = 1) -> Watched:
    """Judge the values of one metric in a new run and its reruns.

    The new run raises an alarm if it lies outside the prediction interval of the past runs at `ALARM`. Then the mean of
    its reruns, without the run that raised the alarm, is tested at `CONFIRM`.

    Args:
        metric: its name, for the answer.
        direction: which values are better.
        past: finite values, one of each past run.
        new: finite values of the new run and then of its reruns, in the order in which they were made.
        metrics: number of metrics that are watched together.
    """
    first, *reruns = new
    count, mean = len(past), float(np.mean(past)) if past else math.nan
    sd = float(np.std(past, ddof=1)) if count > 1 else math.nan
    tested = _Interval(first)
    outcome: Outcome = "undecided"
    if count < MIN_RUNS:
        missing = "one more is needed" if count == MIN_RUNS - 1 else f"{MIN_RUNS - count} more are needed"
        why = f"fewer than {MIN_RUNS} past runs: {missing}"
    elif np.ptp(past) <= _ROUNDING * abs(mean):
        same = abs(first - mean) <= _ROUNDING * abs(mean)
        outcome = "passed" if same else "undecided"
        why = (
            f"the same value as in all {count} past runs"
            if same
            else f"all {count} past runs have the same value; check that they use their seeds"
        )
    else:
        tested = _interval(mean, sd, count, [first], direction=direction, alpha=ALARM, metrics=metrics)
        asked, level = "the value", ALARM
        if tested.p <= ALARM and len(reruns) >= RERUNS:
            tested = _interval(mean, sd, count, reruns, direction=direction, alpha=CONFIRM, metrics=metrics)
            asked, level = f"the mean of its {len(reruns)} reruns", CONFIRM
        outcome = "passed" if tested.p > level else "worse" if level == CONFIRM else "undecided"
        why = f"{asked} is {'within' if outcome == 'passed' else 'outside'} what {count} past runs predict"
        if outcome == "undecided":
            why += "; rerun it twice" if not reruns else "; rerun it once more"
    return Watched(
        metric, direction, outcome, why, tested.value, mean, sd, count, low=tested.low, high=tested.high, p=tested.p
    )


@dataclass(frozen=True)
class _Interval:
    """A prediction interval for the mean of new runs, `value`; the default has no bounds and no p."""

    value: float
    low: float = -math.inf
    high: float = math.inf
    p: float = math.nan


def _interval(
    mean: float, sd: float, count: int, new: Sequence[float], *, direction: Direction, alpha: float, metrics: int
) -> _Interval:
    """Return mean -+ t[count - 1] sd sqrt(1/m + 1/count), for the mean of m new runs.

    Source: Hahn and Meeker, Statistical Intervals (1991), section 4.8.
    """
    value, error = float(np.mean(new)), sd * math.sqrt(1 / len(new) + 1 / count)
    sides = 2 if direction == "both" else 1
    width = -float(special.stdtrit(count - 1, alpha / metrics / sides)) * error
    distance = {"max": mean - value, "min": value - mean, "both": abs(value - mean)}[direction]
    p = sides * float(special.stdtr(count - 1, -distance / error))
    low = -math.inf if direction == "min" else mean - width
    high = math.inf if direction == "max" else mean + width
    return _Interval(value, low, high, min(1.0, metrics * p))
