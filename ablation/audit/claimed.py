"""Compare each claim of a source with our measurements, and give a verdict on the claim.

- *reproduced*: the confidence interval of our difference lies on the claimed side of 0; if no change is claimed, it
  contains 0 and lies within the study's margin.
- *contradicted*: the interval lies on the other side of 0; if no change is claimed, it does not contain 0.
- *not seen*: the interval contains 0, although the study has 80% power for a change as large as the claimed one.
- *too small to see here*: the study has too little power to decide. `visible` is the smallest change that it can show;
  for a claimed change, it also says how many seeds would show that change.
- *inert here*: both variants have the same value on every item in every seed, so the change did not reach the metric.
- *not testable here*: not run, only one seed, or seeds that agree to the last digit.

`ablation.audit.training_claims` has the rules for claims about training curves. A verdict holds for our models and
sizes; `Measured.difference` says how they differ from the source's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, nan
from typing import Literal

from ablation.audit.reproduction import Measured, MeasuredCell
from ablation.config.published_schema import PublishedFile, Standing
from ablation.contract.numbers import alone, counted, decimals_for, fixed, together
from ablation.judge.power import MOST_SEEDS, minimal_detectable_effect, seeds_needed
from ablation.judge.significance import half_width

Verdict = Literal[
    "reproduced",
    "not seen",
    "contradicted",
    "too small to see here",
    "inert here",
    "true by construction",
    "set by the scale",
    "not testable here",
    "not logged",
]
NOT_RUN = "not run"


@dataclass(frozen=True)
class Claimed:
    """A claim of the source, our measurement, the verdict, and the smallest change that the study could show."""

    variant: str
    said: str
    measured: str
    verdict: Verdict
    visible: str = ""


def claimed_changes(published: PublishedFile, measured: Measured) -> Iterator[Claimed]:
    """Yield a `Claimed` for each claim that a number changes from one variant to another."""
    for claim in published.claims:
        said = f"{claim.column} {claim.percent.value:+g}% against {claim.against}: {claim.text}"
        cell = measured.deltas.get((claim.variant, claim.against, claim.column))
        base = measured.rows.get(claim.against, {}).get(claim.column)
        unit = _Unit("%", 100 / abs(base.value) if base is not None and base.value else nan)
        change = _Change(cell, unit, claim.percent.value, claim.percent.value, measured.margin, measured.alpha)
        yield change.claimed(claim.variant, said, measured.reached.get((claim.variant, claim.against), ""))
    for delta in published.deltas:
        low, high = delta.low.value, delta.high.value
        said = f"{delta.column} {low:+g} to {high:+g} against {delta.against}: {delta.text}"
        cell = measured.deltas.get((delta.variant, delta.against, delta.column))
        change = _Change(cell, _Unit("", 1.0), low, high, measured.margin, measured.alpha)
        yield change.claimed(delta.variant, said, measured.reached.get((delta.variant, delta.against), ""))


@dataclass(frozen=True)
class _Unit:
    """The unit of a claim: its `sign` (`%` or empty), and the factor `per` that converts the metric to this unit."""

    sign: str
    per: float

    def show(self, value: float, *, signed: bool = False) -> str:
        digits = ".0f" if self.sign else ".4f"
        return f"{self.per * value:{'+' if signed else ''}{digits}}{self.sign}"


@dataclass(frozen=True)
class _Change:
    """A claimed change between `low` and `high`, in `unit`, with our own difference (`cell`)."""

    cell: MeasuredCell | None
    unit: _Unit
    low: float
    high: float
    margin: float
    alpha: float

    def claimed(self, variant: str, said: str, reached: str) -> Claimed:
        """Return the verdict on the claim; `reached` is the clause of `Measured.reached` on this pair of variants."""
        cell = self.cell
        if cell is None or not cell.seeds:
            return Claimed(variant, said, NOT_RUN if cell is None else cell.problem, "not testable here")
        if cell.identical:
            return Claimed(variant, said, f"every item has the same value in both variants{reached}", "inert here")
        if not _known(cell) or not isfinite(self.unit.per):
            return Claimed(variant, said, _unknown(cell, alone(cell.value, "+")), "not testable here")
        shown, half = self.unit.show(cell.value, signed=True), self.unit.show(cell.half)
        smallest = _mde(cell, self.alpha)
        text, visible = f"{shown} ± {half} ({counted(cell.seeds, 'seed')})", self.unit.show(smallest)
        verdict = self._verdict(cell, smallest)
        if verdict == "too small to see here" and self._least:
            visible += _seeds(cell, self._least, self.alpha)
        return Claimed(variant, said, text, verdict, visible)

    @property
    def _least(self) -> float:
        """Smallest change that agrees with the claim, in the metric's unit; 0 if the claimed range contains 0."""
        return 0.0 if self.low * self.high <= 0 else min(abs(self.low), abs(self.high)) / self.unit.per

    def _verdict(self, cell: MeasuredCell, smallest: float) -> Verdict:
        side = (cell.value > 0) - (cell.value < 0) if abs(cell.value) > cell.half else 0
        if self.low == 0 == self.high:
            if side:
                return "contradicted"
            return "reproduced" if abs(cell.value) + cell.half <= self.margin else "too small to see here"
        if side:
            return "reproduced" if side == (1 if self.low + self.high > 0 else -1) else "contradicted"
        return "not seen" if smallest <= self._least else "too small to see here"


def _known(cell: MeasuredCell) -> bool:
    """Return whether the seeds show how much runs vary: the interval must be finite and wider than 0."""
    return isfinite(cell.value) and isfinite(cell.half) and cell.half > 0


def _unknown(cell: MeasuredCell, value: str) -> str:
    if cell.seeds > 1 and isfinite(cell.value):
        return f"{value} (the same in {cell.seeds} seeds)"
    return f"{value} ({counted(cell.seeds, 'seed')})"


def _mde(cell: MeasuredCell, alpha: float) -> float:
    return nan if cell.noise is None else minimal_detectable_effect(cell.noise, alpha)


def _seeds(cell: MeasuredCell, effect: float, alpha: float) -> str:
    """Return, in parentheses, the number of seeds that would show a claimed effect; empty if the noise is unknown."""
    if cell.noise is None:
        return ""
    seeds = seeds_needed(effect, cell.noise, cell.seeds, alpha)
    needed = f"more than {MOST_SEEDS:,}" if seeds is None else f"{seeds:,}"
    return f" (detecting the claimed change takes {needed} seeds)"


def claimed_standings(published: PublishedFile, measured: Measured) -> Iterator[Claimed]:
    """Yield a `Claimed` for each claim that a variant is the best, or below a bound."""
    for standing in published.standings:
        cell = measured.rows.get(standing.variant, {}).get(standing.column)
        said = f"{standing.column}: {standing.text}"
        if cell is None or not cell.seeds:
            yield Claimed(standing.variant, said, NOT_RUN if cell is None else cell.problem, "not testable here")
        elif standing.best:
            yield _best(published, standing, cell, said, measured)
        elif not _known(cell):
            yield Claimed(standing.variant, said, _unknown(cell, alone(cell.value)), "not testable here")
        elif standing.below is not None:
            bound = standing.below.value
            inside, outside = cell.value + cell.half < bound, cell.value - cell.half >= bound
            decimals = decimals_for([cell.value], [cell.half])
            text = f"{fixed(cell.value, decimals)} ± {fixed(cell.half, decimals)} ({counted(cell.seeds, 'seed')})"
            verdict: Verdict = "reproduced" if inside else "contradicted" if outside else "too small to see here"
            yield Claimed(standing.variant, said, text, verdict)


def _best(published: PublishedFile, standing: Standing, leader: MeasuredCell, said: str, measured: Measured) -> Claimed:
    """Return the verdict on a claim that a variant is the best, from comparisons with all others (Bonferroni).

    The claim is contradicted if another variant is significantly better, and reproduced if all are significantly worse.
    """
    name, column, sign = standing.variant, standing.column, -1 if published.target is not None else 1
    rivals = {
        rival: cell
        for rival in published.rows
        if (cell := measured.deltas.get((name, rival, column))) is not None and cell.seeds and isfinite(cell.value)
    }
    if not rivals:
        return Claimed(name, said, f"{alone(leader.value)}; no other variant was run", "not testable here")
    level = measured.alpha / len(rivals)
    ahead = {rival: sign * cell.value for rival, cell in rivals.items()}
    known = {rival: cell for rival, cell in rivals.items() if cell.noise is not None and _known(cell)}
    reach = {rival: half_width(cell.noise, level) for rival, cell in known.items() if cell.noise is not None}
    nearest = min(ahead, key=ahead.__getitem__)
    best, other = together([leader.value, leader.value - rivals[nearest].value])
    text = f"{best}; the best other variant is {nearest} with {other} ({len(rivals)} compared)"
    if any(ahead[rival] < -reach[rival] for rival in known):
        return Claimed(name, said, text, "contradicted")
    if len(known) == len(rivals) and all(ahead[rival] > reach[rival] for rival in known):
        return Claimed(name, said, text, "reproduced")
    if alike := [rival for rival, cell in rivals.items() if cell.identical]:
        return Claimed(name, said, f"{text}; every item has the same value in {', '.join(alike)}", "inert here")
    smallest = max((_mde(cell, level) for cell in known.values()), default=nan)
    verdict: Verdict = "not seen" if smallest <= _lead(published, standing) else "too small to see here"
    return Claimed(name, said, text, verdict, alone(smallest))


def _lead(published: PublishedFile, standing: Standing) -> float:
    """Return how far the source's number is ahead of the next best one; 0 if the source's number is not the best."""
    index = published.columns.index(standing.column)
    numbers = {name: row[index] for name, row in published.rows.items()}
    values = {name: cell.number.value for name, cell in numbers.items() if cell is not None}
    value = values.pop(standing.variant, nan)
    if not values:
        return 0.0
    lead = min(values.values()) - value if published.target is not None else value - max(values.values())
    return max(lead, 0.0) if isfinite(lead) else 0.0
