"""One line for each claim of a source: what it says, what was measured here, and whether that agrees.

A claimed change or a superlative is compared with the confidence interval of our mean. A figure of the training is
compared with our whole curve, because their steps are not our steps. The verdict is about our models and sizes;
`Measured.difference` says whether they are the source's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

import numpy as np

from ablation.audit.reproduction import Measured, MeasuredCell
from ablation.config.printed import Printed
from ablation.config.published_schema import PublishedFile, Reading
from ablation.contract.display import counted

Verdict = Literal["reproduced", "not seen", "contradicted", "not testable here"]
LARGE = 50  # percent, from which a claim about one part is a claim of its own beside that about the mean


@dataclass(frozen=True)
class Claimed:
    """A claim of the source, what was measured for it, and the verdict."""

    variant: str
    said: str
    measured: str
    verdict: Verdict


def claimed(published: PublishedFile, measured: Measured | None) -> list[Claimed]:
    """Return the claims on changes of the mean, large changes of a part, superlatives, ranges and the training."""
    ours = measured or Measured({})
    return [*_changes(published, ours), *_standings(published, ours), *_training_figures(published, ours)]


def _changes(published: PublishedFile, ours: Measured) -> Iterator[Claimed]:
    for claim in published.claims:
        if claim.column != published.mean and abs(claim.percent.value) < LARGE:
            continue
        said = f"{claim.percent.value:+g}% against {claim.against}, {claim.column}: {claim.text}"
        cell = ours.deltas.get((claim.variant, claim.against, claim.column))
        yield Claimed(claim.variant, said, *_sign(cell, claim.percent.value, claim.percent.value))
    for delta in published.deltas:
        low, high = delta.low.value, delta.high.value
        said = f"{low:+g} to {high:+g} against {delta.against}, {delta.column}: {delta.text}"
        cell = ours.deltas.get((delta.variant, delta.against, delta.column))
        yield Claimed(delta.variant, said, *_sign(cell, low, high))


def _sign(cell: MeasuredCell | None, low: float, high: float) -> tuple[str, Verdict]:
    """Return what was measured and whether its sign agrees; an interval that contains 0 reproduces a change of 0."""
    if cell is None or not isfinite(cell.value) or not isfinite(cell.half):
        if cell is None or not isfinite(cell.value):
            return "", "not testable here"
        said = "1 seed" if cell.seeds == 1 else f"the same in {cell.seeds} seeds"
        return f"{cell.value:+.4f} ({said})", "not testable here"
    text = f"{cell.value:+.4f} ± {cell.half:.4f} ({counted(cell.seeds, 'seed')})"
    side = (cell.value > 0) - (cell.value < 0) if abs(cell.value) > cell.half else 0
    wanted = 1 if high > 0 and low >= 0 else -1 if low < 0 and high <= 0 else 0
    if side == wanted:
        return text, "reproduced"
    return text, "not seen" if side == 0 or (wanted == 0 and low < high) else "contradicted"


def _standings(published: PublishedFile, ours: Measured) -> Iterator[Claimed]:
    pick = min if published.target is not None else max
    for standing in published.standings:
        cells = {
            name: row[standing.column]
            for name, row in ours.rows.items()
            if standing.column in row and isfinite(row[standing.column].value)
        }
        own = cells.get(standing.variant)
        said = f"{standing.column}: {standing.text}"
        if own is None or not isfinite(own.half) or (standing.best and len(cells) < 2):
            yield Claimed(standing.variant, said, "", "not testable here")
        elif standing.best:
            best = pick(cells, key=lambda name: cells[name].value)
            text = f"{own.value:.4f}; the best is {best} with {cells[best].value:.4f}, of {len(cells)}"
            yield Claimed(standing.variant, said, text, "reproduced" if best == standing.variant else "not seen")
        elif standing.below is not None:
            bound = standing.below.value
            inside, outside = own.value + own.half < bound, own.value - own.half > bound
            text = f"{own.value:.4f} ± {own.half:.4f} ({counted(own.seeds, 'seed')})"
            verdict: Verdict = "reproduced" if inside else "contradicted" if outside else "not seen"
            yield Claimed(standing.variant, said, text, verdict)


def _training_figures(published: PublishedFile, ours: Measured) -> Iterator[Claimed]:
    for reading in published.training:
        figures = [
            _Figure(metric, *((value, value) if isinstance(value, Printed) else value))
            for metric, value in reading.values.items()
        ]
        notes = "; ".join(part for part in (reading.kind, reading.at, reading.text) if part)
        said = f"{', '.join(f'{figure.metric} {figure}' for figure in figures)} ({notes})"
        courses = [(figure, figure.course(reading, ours)) for figure in figures]
        outcomes = [(figure.verdict(values), figure.shown(values)) for figure, values in courses if len(values)]
        verdicts = {verdict for verdict, _ in outcomes}
        verdict: Verdict = "not testable here"
        if outcomes:
            verdict = "reproduced" if verdicts == {"reproduced"} else "not seen"
            verdict = "contradicted" if "contradicted" in verdicts else verdict
        yield Claimed(reading.variant, said, "; ".join(text for _, text in outcomes), verdict)


class _Figure:
    """A stated figure of a training: a range, or a number as a range of no width; `|metric|` is an absolute value.

    A number is reproduced where our curve passes it, else not seen. A range is reproduced by at least half of our
    steps, contradicted by none, else not seen.
    """

    def __init__(self, metric: str, low: Printed | None, high: Printed | None) -> None:
        self.metric = metric
        self.low, self.high = -inf if low is None else low.value, inf if high is None else high.value

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:g}"
        if self.high == inf:
            return f"{self.low:g} and more"
        return f"{self.high:g} and less" if self.low == -inf else f"{self.low:g} to {self.high:g}"

    def course(self, reading: Reading, ours: Measured) -> np.ndarray:
        """Return our values of all steps, seeds and stages."""
        name = self.metric.strip("|")
        seeds = [
            values
            for (variant, stage, metric), by_seed in ours.curves.items()
            if (variant, metric) == (reading.variant, name) and reading.stage in (None, stage)
            for values in by_seed
        ]
        values = np.concatenate(seeds) if seeds else np.empty(0)
        return values if name == self.metric else np.abs(values)

    def share(self, values: np.ndarray) -> float:
        """Return the share of values inside; bounds count as inside."""
        slack = 1e-9 * max(abs(bound) for bound in (self.low, self.high, 0.0) if isfinite(bound))
        return float(np.mean((values >= self.low - slack) & (values <= self.high + slack)))

    def verdict(self, values: np.ndarray) -> Verdict:
        """Return the verdict of our values."""
        if self.low == self.high:
            return "reproduced" if values.min() <= self.low <= values.max() else "not seen"
        share = self.share(values)
        return "reproduced" if share >= 0.5 else "not seen" if share else "contradicted"

    def shown(self, values: np.ndarray) -> str:
        """Return our course in words."""
        course = f"{self.metric} {values.min():.4g} to {values.max():.4g}, median {np.median(values):.4g}"
        if self.low == self.high:
            return course if self.verdict(values) == "reproduced" else f"{course}, never there"
        return f"{course}, {self.share(values):.0%} inside"


def stated_metrics(published: PublishedFile) -> list[str]:
    """Return the names of the metrics with figures in the source, without the bars of an absolute value."""
    names = (name.strip("|") for reading in published.training for name in reading.values)
    return list(dict.fromkeys(names))
