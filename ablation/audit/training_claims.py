"""Compare the figures that a source states about training with the measured curves.

- A number is *reproduced* if it lies in the prediction interval for the median of another run, or for its mean over the
  part of training that the figure names (`at`). Otherwise it is *not seen*.
- A range is *reproduced* if it contains half of our steps or more, *contradicted* if it contains none, and otherwise
  *not seen*.
- *true by construction*: the code cannot compute a value outside the figure (`possible`).
- *set by the scale*: the figure repeats a setting (`set_by`) that has another value here.
- *not testable here*: not run, only one seed, or a property of the source's data (`scale`).
- *not logged*: our runs do not log the metric that the figure names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from ablation.audit.claimed import NOT_RUN, Claimed, Verdict
from ablation.audit.reproduction import Measured
from ablation.config import dotted
from ablation.config.printed import Printed
from ablation.config.published_schema import Figure, PublishedFile, Reading, Step
from ablation.contract.numbers import alone, estimate, percent, stated
from ablation.judge.significance import Array, student_isf

WINDOW = 0.1  # share of a training's steps that is averaged for a figure at one place
ZERO = 1e-6  # smaller numbers count as 0, because sums of numbers near 1 are rounded
_UNTESTED: tuple[Verdict, ...] = ("not logged", "set by the scale", "true by construction", "not testable here")


def claimed_figures(published: PublishedFile, measurement: Measured) -> Iterator[Claimed]:
    """Yield a `Claimed` for each statement of the source about a training curve."""
    for reading in published.training:
        figures = [_Stated(reading, metric, value) for metric, value in reading.values.items()]
        outcomes = [figure.outcome(measurement) for figure in figures]
        place = f"step {reading.at.step} of {reading.at.of}" if isinstance(reading.at, Step) else reading.at
        notes = "; ".join(part for part in (reading.kind, place, reading.text) if part)
        said = f"{', '.join(map(str, figures))} ({notes})"
        words = [word for _, word in outcomes]
        alike = len(set(words)) == 1
        measured = [text if alike or not text else f"{text} ({word})" for text, word in outcomes]
        yield Claimed(reading.variant, said, "; ".join(filter(None, dict.fromkeys(measured))), _together(words))


def _together(words: Sequence[Verdict]) -> Verdict:
    """Return one verdict for several figures: `not logged` if any is, else the worst, with untested figures last."""
    order: tuple[Verdict, ...] = ("contradicted", "not seen", "reproduced", *_UNTESTED)
    if "not logged" in words:
        return "not logged"
    return min(words, key=order.index)


@dataclass(frozen=True)
class _Stated:
    """One figure that a source states: a number or a range."""

    reading: Reading
    metric: str
    value: Figure

    def __str__(self) -> str:
        if isinstance(self.value, Printed):
            return f"{self.metric} {stated(self.value.value)}"
        low, high = bounds(self.value)
        if high == inf:
            return f"{self.metric} {stated(low)} or more"
        return (
            f"{self.metric} {stated(high)} or less" if low == -inf else f"{self.metric} {stated(low)} to {stated(high)}"
        )

    def outcome(self, measured: Measured) -> tuple[str, Verdict]:
        """Return the measurement in words, and the verdict."""
        reading = self.reading
        if reading.variant not in measured.ran:
            return NOT_RUN, "not testable here"
        if reading.scale not in (None, measured.scale):
            return (
                f"the metric depends on the source's data, so it is compared only at scale {reading.scale}",
                "not testable here",
            )
        return self._compared(measured)

    def _compared(self, measured: Measured) -> tuple[str, Verdict]:
        reading = self.reading
        courses = self._courses(measured)
        if not courses:
            return f"{self.metric} is not logged", "not logged"
        if key := reading.set_by.get(self.metric):
            setting = dotted.get(measured.settings.get(reading.variant, {}), key, None)
            if not isinstance(self.value, Printed) or setting != self.value.value:
                return f"{self._median(courses)}; {key} is {setting}", "set by the scale"
        if possible := reading.possible.get(self.metric):
            (least, most), (low, high) = bounds(possible), bounds(self.value)
            everything = np.concatenate(courses)
            if low <= least and most <= high and _share(everything, least, most) == 1:
                return self._median(courses), "true by construction"
        if len(courses) < 2:
            return f"{self._median(courses)} (1 seed)", "not testable here"
        parts = [course[window(len(course), reading.at)] for course in courses]
        return self._number(parts, measured.alpha) if isinstance(self.value, Printed) else self._range(parts)

    def _courses(self, measured: Measured) -> list[Array]:
        """Return our finite values by step, one array for each seed, with the stages in sequence."""
        name = self.metric.strip("|")
        stages = [
            by_seed
            for (variant, stage, metric), by_seed in measured.curves.items()
            if (variant, metric) == (self.reading.variant, name) and self.reading.stage in (None, stage)
        ]
        found = [np.concatenate(of_seed) for of_seed in zip(*stages, strict=False)]
        return found if name == self.metric else [np.abs(values) for values in found]

    def _median(self, courses: Sequence[Array]) -> str:
        return f"{self.metric} {alone(np.median(np.concatenate(courses)))}"

    def _number(self, parts: Sequence[Array], alpha: float) -> tuple[str, Verdict]:
        assert isinstance(self.value, Printed)
        centre = np.median if self.reading.at is None else np.mean
        by_run = np.array([centre(part) for part in parts])
        half = student_isf(len(by_run) - 1, alpha / 2) * float(by_run.std(ddof=1)) * sqrt(1 + 1 / len(by_run))
        source, mean = self.value.value, float(by_run.mean())
        slack = self.value.half if source else ZERO
        text = " ".join([self.metric, *estimate(mean, mean - half, mean + half, sign="")])
        return text, "reproduced" if abs(mean - source) <= half + slack else "not seen"

    def _range(self, parts: Sequence[Array]) -> tuple[str, Verdict]:
        values = np.concatenate(parts)
        share = _share(values, *bounds(self.value))
        text = f"{self.metric} {alone(np.median(values))}, {percent(share)} of steps within the stated range"
        return text, "reproduced" if share >= 0.5 else "not seen" if share else "contradicted"


def bounds(figure: Figure) -> tuple[float, float]:
    """Return the least and the largest value of a figure, infinite at an open end of a range."""
    low, high = (figure, figure) if isinstance(figure, Printed) else figure
    return -inf if low is None else low.value, inf if high is None else high.value


def window(steps: int, at: str | Step | None) -> slice:
    """Return the steps of a part of training: all (None), the first or last tenth, or a tenth around a step."""
    wide = max(1, round(WINDOW * steps))
    if at is None:
        return slice(0, steps)
    if at == "start":
        return slice(0, wide)
    last = steps if not isinstance(at, Step) else round(at.step / at.of * steps + wide / 2)
    last = min(max(last, wide), steps)
    return slice(last - wide, last)


def _share(values: Array, low: float, high: float) -> float:
    """Return the share of values in [low, high], with a tolerance for rounding."""
    slack = ZERO if low == high else 1e-9 * max(abs(bound) for bound in (low, high, 0.0) if isfinite(bound))
    return float(np.mean((values >= low - slack) & (values <= high + slack)))


def stated_metrics(published: PublishedFile) -> list[str]:
    """Return the names of the metrics for which the source states figures, without the bars of an absolute value."""
    names = (name.strip("|") for reading in published.training for name in reading.values)
    return list(dict.fromkeys(names))
