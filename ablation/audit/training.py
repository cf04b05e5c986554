"""Training figures that a source states, checked against each other and against our curves.

A reading is one line of the source's log ("seen"), the range that it calls healthy, or what it expected. `curves` holds
our own values over the steps, one array per seed, by variant, stage and metric. A step of theirs is not a step of ours
(other data, batches and rates), so a number is compared with our whole curve, and a range with the share of our steps
inside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from ablation.audit.reproduction import Curves, Measured
from ablation.audit.table import Finding
from ablation.config.printed import Printed
from ablation.config.published_schema import Difference, PublishedFile, Reading
from ablation.contract.reading import counted

KIND = "training"
_EXACT = 1e-9  # slack for binary floating point, relative to the numbers


@dataclass(frozen=True)
class _Figure:
    """One stated value: a range, or a number as a range of no width."""

    variant: str
    stage: str | None
    kind: str
    at: str | None
    metric: str
    low: float
    high: float
    text: str

    @property
    def is_number(self) -> bool:
        return self.low == self.high

    def holds(self, value: float) -> bool:
        """Whether the value is inside; bounds count as inside."""
        slack = _EXACT * max(abs(bound) for bound in (self.low, self.high, 0.0) if isfinite(bound))
        return self.low - slack <= value <= self.high + slack

    @property
    def value(self) -> str:
        """The number or the range in words."""
        if self.is_number:
            return f"{self.low:g}"
        if self.high == inf:
            return f"{self.low:g} and more"
        return f"{self.high:g} and less" if self.low == -inf else f"{self.low:g} to {self.high:g}"

    @property
    def said(self) -> str:
        """`seen at 117 (step 141; the difference explodes)`."""
        verb = {"seen": "seen at", "healthy": "called healthy at", "expected": "expected at"}[self.kind]
        return f"{verb} {self.value} ({'; '.join(part for part in (self.at, self.text) if part)})"


def training_findings(published: PublishedFile, measured: Measured | None) -> Iterator[Finding]:
    """Check the readings against each other, and against ours where there are any."""
    figures = [figure for reading in published.training for figure in _figures(reading)]
    yield from _differences(published.training, published.differences)
    yield from _against_own_ranges(figures)
    if measured is not None:
        for figure in figures:
            yield from _beside_ours(figure, measured.curves, measured.difference)


def figure_verdicts(reading: Reading, curves: Curves) -> tuple[str, list[tuple[str, str]]]:
    """Return what a reading states in words and, for each figure that was measured, the verdict and our course.

    A number is reproduced where our curve passes it, else not seen. A range is reproduced by at least half of our
    steps, contradicted by none, else not seen.
    """
    figures = list(_figures(reading))
    stated = ", ".join(f"{figure.metric} {figure.value}" for figure in figures)
    notes = "; ".join(part for part in (reading.at, reading.text) if part)
    found = []
    for figure in figures:
        ours = _ours(figure, curves)
        if not ours:
            continue
        values = np.concatenate([of for seeds in ours.values() for of in seeds])
        values = np.abs(values) if figure.metric.startswith("|") else values
        share = float(np.mean([figure.holds(value) for value in values]))
        if figure.is_number:
            verdict = "reproduced" if _meets(figure, values)[0] else "not seen"
        else:
            verdict = "reproduced" if share >= 0.5 else "not seen" if share else "contradicted"
        found.append((verdict, f"{figure.metric} {_meets(figure, values)[1]}"))
    return f"{stated} ({reading.kind}; {notes})", found


def stated_metrics(published: PublishedFile) -> list[str]:
    """Names of the metrics with figures in the source, without the bars of an absolute value."""
    names = (name.strip("|") for reading in published.training for name in reading.values)
    return list(dict.fromkeys(names))


def _figures(reading: Reading) -> Iterator[_Figure]:
    for metric, value in reading.values.items():
        low, high = (value, value) if isinstance(value, Printed) else value
        yield _Figure(
            variant=reading.variant,
            stage=reading.stage,
            kind=reading.kind,
            at=reading.at,
            metric=metric,
            low=-inf if low is None else low.value,
            high=inf if high is None else high.value,
            text=reading.text,
        )


def _differences(readings: Sequence[Reading], rules: Sequence[Difference]) -> Iterator[Finding]:
    """The mean of differences is the difference of the means, whatever the pairs, up to rounding."""
    for rule in rules:
        for reading in readings:
            whole, of, less = (reading.values.get(name) for name in (rule.metric, rule.of, rule.less))
            if not isinstance(whole, Printed) or not isinstance(of, Printed) or not isinstance(less, Printed):
                continue
            slack = whole.exact_half + of.exact_half + less.exact_half
            if abs(of.exact - less.exact - whole.exact) > slack:
                text = (
                    f"{reading.variant}: {rule.metric} is stated as {whole}, but {rule.of} minus {rule.less} is "
                    f"{of.value:g} - ({less.value:g}) = {of.value - less.value:g}: they are not of the same pairs, "
                    "or were rounded before they were printed."
                )
                yield Finding(KIND, reading.variant, rule.metric, "warn", text)


def _against_own_ranges(figures: Sequence[_Figure]) -> Iterator[Finding]:
    """Values that the source saw (or expected) for a variant, outside the range that it calls healthy itself."""
    for figure in figures:
        for wanted in figures:
            same = (wanted.variant, wanted.metric) == (figure.variant, figure.metric)
            if not figure.is_number or wanted.is_number or not same or wanted.holds(figure.low):
                continue
            healthy = wanted.kind == "healthy"
            text = (
                f"{figure.variant}, {figure.metric}: {figure.said}, outside of the {wanted.value} that the source "
                f"itself {'calls healthy' if healthy else 'expects'} ({wanted.text})."
            )
            yield Finding(KIND, figure.variant, figure.metric, "warn" if healthy else "note", text)


def _beside_ours(figure: _Figure, curves: Curves, incomparable: str) -> Iterator[Finding]:
    metric, ours = figure.metric.strip("|"), _ours(figure, curves)
    start = f"{figure.variant}, {figure.metric}: {figure.said}"
    if not ours and any(variant == figure.variant for variant, _, _ in curves):
        yield Finding(KIND, figure.variant, figure.metric, "note", f"{start}; not measured here.")
    if not ours:
        return
    agrees, courses = [], []
    for stage, seeds in ours.items():
        values = np.concatenate(list(seeds))
        meets, text = _meets(figure, np.abs(values) if figure.metric != metric else values)
        agrees.append(meets)
        courses.append(f"in {stage} {text} ({counted(len(values), 'step')} of {counted(len(seeds), 'run')})")
    sentence = f"{start}; measured {' and '.join(courses)}"
    if incomparable:
        text = f"{sentence}; not comparable, {incomparable}."
        yield Finding(KIND, figure.variant, figure.metric, "note", text)
    else:
        yield Finding(KIND, figure.variant, figure.metric, "note" if any(agrees) else "warn", f"{sentence}.")


def _ours(figure: _Figure, curves: Curves) -> dict[str, Sequence[np.ndarray]]:
    """Return our curves of the figure's metric, by stage."""
    return {
        stage: seeds
        for (variant, stage, name), seeds in curves.items()
        if (variant, name) == (figure.variant, figure.metric.strip("|")) and figure.stage in (None, stage)
    }


def _meets(figure: _Figure, values: np.ndarray) -> tuple[bool, str]:
    """Whether our steps ever reach the stated value, and their course in words."""
    low, middle, high = values.min(), np.median(values), values.max()
    course = f"{low:.4g} to {high:.4g}, median {middle:.4g}"
    if figure.is_number:
        passes = bool(low <= figure.low <= high)
        return passes, course if passes else f"{course}, never there"
    share = float(np.mean([figure.holds(value) for value in values]))
    return share > 0, f"{course}, {share:.0%} inside"
