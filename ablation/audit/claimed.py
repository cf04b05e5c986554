"""One line for each claim of a source: what it says, what was measured here, and whether that agrees.

A claimed change, or a superlative, is held against the confidence interval of our mean; a figure of the training
against our whole curve, as a step of theirs is not a step of ours. The verdict is about our models and sizes: whether
those are the source's is said by `Measured.difference`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from ablation.audit.reproduction import Measured, MeasuredCell
from ablation.audit.training import figure_verdicts
from ablation.config.published_schema import PublishedFile
from ablation.contract.reading import counted

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
    """Return the source's claims: changes of the mean, and large ones of a part; superlatives; ranges; the training."""
    ours = measured or Measured({})
    return [*_changes(published, ours), *_standings(published, ours), *_of_training(published, ours)]


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
    """Compare the signs: a claimed change of 0 is reproduced by an interval that contains it."""
    if cell is None or not isfinite(cell.value) or not isfinite(cell.half):
        return (f"{cell.value:+.4f} (1 seed)" if cell and isfinite(cell.value) else ""), "not testable here"
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


def _of_training(published: PublishedFile, ours: Measured) -> Iterator[Claimed]:
    for reading in published.training:
        said, found = figure_verdicts(reading, ours.curves)
        verdicts = {meets for meets, _ in found}
        verdict: Verdict = "not testable here"
        if found:
            verdict = "reproduced" if verdicts == {"reproduced"} else "not seen"
            verdict = "contradicted" if "contradicted" in verdicts else verdict
        yield Claimed(reading.variant, said, "; ".join(text for _, text in found), verdict)
