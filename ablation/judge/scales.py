"""Checks whether the values of a comparison are on one scale, and whether any difference could exceed the margin.

Otherwise a gate would pass: percentages beside shares look like a large gain, and no value is worse by a margin that is
as wide as the scale.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ablation.contract.numbers import alone, stated
from ablation.contract.rows import LOGGED
from ablation.judge.measurements import Measurements
from ablation.judge.statistics import Array, gain
from ablation.store.database import Run

_FEW = 8  # items from which on a run's range shows its scale
_BEYOND = 5.0  # on two scales, the least value above 1 is so many times the largest share
_LARGER = 4.0, 2.0  # on one scale, one run's largest value and mean are at most so many times another's
_FAR = 100  # an unbounded metric can reach so many times the largest value so far


def scale_doubts(study: Measurements, parent: str, runs: Sequence[Run]) -> Iterator[str]:
    """Yield the reasons why the values of a comparison's runs, or its margin, do not allow an answer."""
    if why := unlike_units(study, runs):
        yield why
    if study.analysis.margin is not None and (why := margin_is_the_scale(study, parent)):
        yield f"margin {stated(study.analysis.margin)} {why}"


def unlike_units(study: Measurements, runs: Sequence[Run]) -> str:
    """Return the reason why the values of runs seem to be on two scales; empty if they seem to be on one.

    Runs of a plan are not checked, because one program measured all of them.
    """
    if "scale" in study.allowed or not (study.imported or not study.planned):
        return ""
    for subset in study.analysis.subsets:
        run_values = [values for run in runs if len(values := study.values[run][subset].values)]
        if study.analysis.transform:  # a common unit shows in the values themselves
            run_values = [np.exp(values) for values in run_values]
        if run_values and (
            why := unlike(sorted(run_values, key=lambda values: (float(values.max()), float(values.mean()))))
        ):
            return f"{subset}: {why}"
    return ""


def unlike(by_size: Sequence[Array]) -> str:
    """Return the reason why values, sorted by size, seem to be on two scales; empty if they seem to be on one."""
    least, most, every = by_size[0], by_size[-1], np.concatenate(by_size)
    if every.min() < 0 or every.max() <= 1:
        return ""
    ranges = f"one run has values {_range(least)}, another {_range(most)}"
    above = float(every[every > 1].min())
    below = every[every <= 1].max(initial=0.0)
    if above >= _BEYOND * below and (((every > 0) & (every < 1)).any() or ({0.0, 1.0} <= set(every) and above >= 10)):
        gap = f"no value lies between {stated(below)} and {stated(above)}"
        return f"{ranges}, and {gap}, so they may mix shares with percentages or ratings"
    if least.max() <= 0 or min(len(least), len(most)) < _FEW:
        return ""
    larger = most.max() >= _LARGER[0] * least.max() and most.mean() >= _LARGER[1] * least.mean()
    apart = least.max() <= most.min() or least.max() <= 1 < np.median(most) or larger
    return f"{ranges}, so they may be on two scales" if apart else ""


def _range(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{stated(low)} to {stated(high)}" if low < high else stated(low)


def margin_is_the_scale(study: Measurements, parent: str) -> str:
    """Return a message if even the worst values would lie within the margin of a parent; else an empty string.

    For items, the worst value is the worst so far. For a logged metric, it is the end of the scale: 0, 1 for shares, or
    a hundred times the largest value of an unbounded metric.
    """
    margin, logged = study.analysis.margin, study.analysis.protocol == LOGGED
    if margin is None:
        return ""
    room = []
    for subset in study.analysis.subsets:
        runs = {
            run: by_subset[subset].values
            for run, by_subset in study.values.items()
            if subset in by_subset and len(by_subset[subset].values)
        }
        parent_means = [values.mean() for (variant, _), values in runs.items() if variant == parent]
        if not parent_means:
            return ""
        every = np.concatenate([*runs.values()])
        ends = [every.min(), every.max()]
        if logged and study.analysis.transform:
            ends = [every.min() - np.log(_FAR), every.max() + np.log(_FAR)]
        elif logged and ends[0] >= 0:
            ends = [0.0, 1.0 if ends[1] <= 1 else _FAR * ends[1]]
        elif logged:
            ends = [-_FAR * np.abs(every).max(), _FAR * np.abs(every).max()]
        centre, *worst = gain(np.array([np.mean(parent_means), *ends]), study.direction)
        room.append(float(centre - min(worst)))
    if np.mean(room) > margin:
        return ""
    why = f"the worst value differs from the mean of {parent} by only {alone(np.mean(room))}"
    return f"is as wide as the scale, because {why}"
