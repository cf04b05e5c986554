"""Compares a new run with the prediction interval of past runs, as a nightly check does.

A false alarm has the stated probability, however few past runs there are. Hand-made thresholds do not have this
property: docs/explanation/evidence.md shows how often each of them fails. From `MIN_IN_ORDER` nights on, the prediction
follows their trend and their autocorrelation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

ALARM = 0.10
"""Probability that a run without any change requires reruns, over all watched metrics together."""
CONFIRM, CONFIRM_IN_ORDER = 0.05, 0.02
"""Levels at which the mean of the reruns must be outside the prediction interval: for independent past runs, and for
past runs in order."""
MIN_RUNS = 5
MIN_IN_ORDER = 15
"""Fewest past runs for an estimate of trend and autocorrelation; with fewer, too few drops would be found."""
RERUNS = 2

_ROUNDING = 1e-6  # values that differ less, relative to their mean, are the same run in float32
_AUTOCORRELATIONS = np.linspace(0, 0.9, 10)

Outcome = Literal["passed", "undecided", "worse"]
Direction = Literal["max", "min", "both"]
"""Values that are better: `max` watches for a fall, `min` for a rise, `both` for either."""


@dataclass(frozen=True)
class Watched:
    """The answer for one watched metric.

    Attributes:
        metric: its name.
        direction: which values are better.
        outcome: passed, undecided (reruns or past runs are missing) or worse.
        why: one sentence.
        value: of the new run; if reruns decide, their mean.
        mean, sd, runs: mean, standard deviation and number of the past runs.
        low, high: bounds of the prediction interval; infinite on a side that is not watched.
        p: of the value under the past runs, times the number of watched metrics (Bonferroni), at most 1.
        trend: change of the metric from night to night; NaN if the past runs count as independent.
        autocorrelation: of the deviations of successive nights (the coefficient of an AR(1)); NaN without an estimate.
        confirm: level at which the mean of the reruns is tested.
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
    trend: float
    autocorrelation: float
    confirm: float


def watch(
    metric: str,
    direction: Direction,
    past: Sequence[float],
    new: Sequence[float],
    metrics: int = 1,
    *,
    in_order: bool = False,
) -> Watched:
    """Judge the values of one metric in a new run and its reruns.

    The new run raises an alarm if it lies outside the prediction interval of the past runs at `ALARM`. Then the mean of
    its reruns, without the run that raised the alarm, is tested at `CONFIRM` or, in order, at `CONFIRM_IN_ORDER`.

    Args:
        metric: name of the metric.
        direction: which values are better.
        past: finite values, one of each past run.
        new: finite values of the new run and then of its reruns, in the order in which they were made.
        metrics: number of metrics that are watched together.
        in_order: whether `past` is in the order of the nights, and the new run comes after them.
    """
    first, *reruns = new
    count, mean = len(past), float(np.mean(past)) if past else math.nan
    sd = float(np.std(past, ddof=1)) if count > 1 else math.nan
    tested, predicted = _Interval(first), _Prediction(mean, own=math.nan, shared=math.nan, freedom=count - 1)
    outcome: Outcome = "undecided"
    ordered = in_order and count >= MIN_IN_ORDER
    if count < MIN_RUNS:
        missing = "one more is needed" if count == MIN_RUNS - 1 else f"{MIN_RUNS - count} more are needed"
        why = f"there are fewer than {MIN_RUNS} past runs; {missing}"
    elif np.ptp(past) <= _ROUNDING * abs(mean):
        same = abs(first - mean) <= _ROUNDING * abs(mean)
        outcome = "passed" if same else "undecided"
        why = (
            f"the value is the same as in all {count} past runs"
            if same
            else f"all {count} past runs have the same value; check that the runs use their seeds"
        )
    elif ordered and np.polyfit(range(count), past, 1, full=True)[1].sum() <= (_ROUNDING * (abs(mean) + sd)) ** 2:
        why = f"the values of all {count} past runs lie on a straight line; check that the runs use their seeds"
    else:
        predicted = replace(predicted, own=sd**2, shared=sd**2 / count)
        if ordered:
            predicted = _of_nights(np.array(past))
        tested = _interval(predicted, [first], direction=direction, alpha=ALARM, metrics=metrics)
        asked, level = "the value", ALARM
        if tested.p <= ALARM and len(reruns) >= RERUNS:
            level = predicted.confirm
            tested = _interval(predicted, reruns, direction=direction, alpha=level, metrics=metrics)
            asked = f"the mean of {len(reruns)} reruns"
        outcome = "passed" if tested.p > level else "worse" if level != ALARM else "undecided"
        why = f"{asked} is {'within' if outcome == 'passed' else 'outside'} what {count} past runs predict"
        if outcome == "undecided":
            why += "; repeat the new run twice" if not reruns else "; repeat the new run once more"
    return Watched(
        metric,
        direction,
        outcome,
        why,
        tested.value,
        mean,
        sd,
        count,
        low=tested.low,
        high=tested.high,
        p=tested.p,
        trend=predicted.trend,
        autocorrelation=predicted.autocorrelation,
        confirm=predicted.confirm,
    )


@dataclass(frozen=True)
class _Prediction:
    """A prediction for the runs of a new night: the mean of m runs has the variance `shared + own / m`.

    Attributes:
        own: variance between runs of one night.
        shared: variance of the estimated mean, and of what all runs of the night have in common.
        freedom: degrees of freedom of both variances.
    """

    mean: float
    own: float
    shared: float
    freedom: int
    trend: float = math.nan
    autocorrelation: float = math.nan
    confirm: float = CONFIRM


def _of_nights(past: NDArray[np.float64]) -> _Prediction:
    """Return the prediction for the night after the past nights, which are in order.

    It is a trend line with autocorrelated deviations. The deviation of a night is c times that of the night before,
    plus an innovation (AR(1)). Reruns of a night share the fraction c of the innovation's variance: a state that lasts
    until the next night also lasts until a rerun. The prediction is averaged over a grid of c, weighted by restricted
    likelihood, so its variance includes that of c.

    Source: Goldberger (1962), "Best linear unbiased prediction in the generalized linear regression model";
    Harville (1974), "Bayesian inference for variance components using only error contrasts".
    """
    count, level = len(past), float(np.mean(past))
    rows = np.column_stack([np.ones(count), np.arange(-count, 0), past - level])  # the new night is night 0
    carry = _AUTOCORRELATIONS[:, None, None]
    white = np.concatenate([np.sqrt(1 - carry**2) * rows[:1], rows[1:] - carry * rows[:-1]], axis=1)
    line, values = white[..., :2], white[..., 2:]
    inverse = np.linalg.inv(line.mT @ line)
    fitted = inverse @ line.mT @ values
    variance = np.sum((values - line @ fitted) ** 2, axis=(1, 2)) / (count - 2)
    at = np.array([[1, 0]]) - carry * rows[-1:, :2]
    means = (at @ fitted)[:, 0, 0] + _AUTOCORRELATIONS * rows[-1, 2]
    shared = variance * (_AUTOCORRELATIONS + (at @ inverse @ at.mT)[:, 0, 0])
    likelihoods = np.log((1 - _AUTOCORRELATIONS**2) * np.linalg.det(inverse)) / 2 - (count / 2 - 1) * np.log(variance)
    weights = special.softmax(likelihoods)
    mean = float(weights @ means)
    return _Prediction(
        level + mean,
        own=float(weights @ (variance * (1 - _AUTOCORRELATIONS))),
        shared=float(weights @ (shared + (means - mean) ** 2)),
        freedom=count - 2,
        trend=float(weights @ fitted[:, 1, 0]),
        autocorrelation=float(weights @ _AUTOCORRELATIONS),
        confirm=CONFIRM_IN_ORDER,
    )


@dataclass(frozen=True)
class _Interval:
    """A prediction interval for `value`, the mean of new runs; the default has no bounds and no p."""

    value: float
    low: float = -math.inf
    high: float = math.inf
    p: float = math.nan


def _interval(
    predicted: _Prediction, new: Sequence[float], *, direction: Direction, alpha: float, metrics: int
) -> _Interval:
    """Return the prediction interval of the mean of m new runs, `mean ± t * sqrt(shared + own / m)`, and the p-value.

    Source: Hahn and Meeker, Statistical Intervals (1991), section 4.8.
    """
    value, error = float(np.mean(new)), math.sqrt(predicted.shared + predicted.own / len(new))
    mean, freedom = predicted.mean, predicted.freedom
    sides = 2 if direction == "both" else 1
    width = -float(special.stdtrit(freedom, alpha / metrics / sides)) * error
    distance = {"max": mean - value, "min": value - mean, "both": abs(value - mean)}[direction]
    p = sides * float(special.stdtr(freedom, -distance / error))
    low = -math.inf if direction == "min" else mean - width
    high = math.inf if direction == "max" else mean + width
    return _Interval(value, low, high, min(1.0, metrics * p))
