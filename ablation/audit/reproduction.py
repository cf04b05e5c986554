"""Compare reported numbers with our prediction intervals, which cover what another run of ours would give.

A confidence interval of our mean would not do: with many seeds, most single runs lie outside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

import numpy as np

from ablation.audit.table import Finding, Severity, Table
from ablation.config.printed import Printed
from ablation.config.published_schema import Delta
from ablation.contract.numbers import counted, estimate
from ablation.judge.significance import Noise

Curves = Mapping[tuple[str, str, str], Sequence[np.ndarray]]  # variant, stage, metric: [seeds] of [steps]


@dataclass(frozen=True)
class MeasuredCell:
    """Our number for a published cell, or for the difference of two, in the published metric's units and direction.

    Attributes:
        value: our mean, or difference of two means.
        low, high: prediction interval of a mean over as many runs as the source's; NaN with one seed.
        seeds: number of seeds; 0 if there are no runs.
        problem: what is wrong with our runs; empty if nothing is.
        half: half width of the confidence interval of `value`; NaN with one seed.
        noise: the variances of `value` over seeds and items; None if there are no runs.
        identical: for a difference, whether every item has the same value in both variants, in each seed.
    """

    value: float
    low: float
    high: float
    seeds: int
    problem: str = ""
    half: float = nan
    noise: Noise | None = None
    identical: bool = False


@dataclass(frozen=True)
class Measured:
    """Our own table of a study, which is compared with a published table.

    Attributes:
        rows: {variant: {column: cell}}.
        difference: why the table may not be compared with the source; empty if it may.
        deltas: {(variant, against, column): cell}, differences between two variants.
        curves: our curves of the metrics for which the source states training figures.
        scale: the scale of our runs.
        settings: {variant: resolved configuration}.
        ran: the variants with a run that succeeded.
        reached: {(variant, against): clause that says how many values of the study's primary metric differ}, for pairs
            with equal values of the published metric; empty if both are the same metric.
        margin, alpha: margin and level of the study's analysis plan.
    """

    rows: Mapping[str, Mapping[str, MeasuredCell]]
    difference: str = ""
    deltas: Mapping[tuple[str, str, str], MeasuredCell] = field(default_factory=dict)  # variant, against, column
    curves: Curves = field(default_factory=dict)
    scale: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ran: frozenset[str] = frozenset()
    reached: Mapping[tuple[str, str], str] = field(default_factory=dict)
    margin: float = nan
    alpha: float = 0.05


def cell_findings(table: Table, measured: Measured) -> Iterator[Finding]:
    """Yield a finding for each reported cell that we measured: whether the cell lies in our prediction interval."""
    for variant, row in table.rows.items():
        cells = measured.rows.get(variant, {})
        if problems := {cell.problem for cell in cells.values() if not cell.seeds}:
            text = f"{variant} was not measured ({'; '.join(sorted(problems))})."
            yield Finding("reproduction", variant, "", "note", text)
            continue
        for column, reported in row.items():
            cell, number = cells.get(column), reported.number
            if cell is None or not isfinite(cell.value):
                continue
            start = f"{variant}, {column}: reported {number}, measured {_shown(cell, number)}"
            severity: Severity = "note"
            if reason := "; ".join(filter(None, (measured.difference, cell.problem))):
                said = f"not comparable, because {reason}"
            elif not isfinite(cell.low):
                said = "one seed does not show how much runs vary"
            elif cell.low - number.half <= number.value <= cell.high + number.half:
                said = "reproduced, because the reported value lies in the prediction interval for another run"
            else:
                said = "different, because the reported value lies outside the prediction interval for another run"
                severity = "warn"
            yield Finding("reproduction", variant, column, severity, f"{start}: {said}.")


def delta_findings(deltas: Sequence[Delta], measured: Measured) -> Iterator[Finding]:
    """Yield a finding for each reported range of a difference: whether our prediction interval overlaps the range."""
    for delta in deltas:
        variant, column = delta.variant, delta.column
        cell = measured.deltas.get((variant, delta.against, column))
        if cell is None:
            continue
        reported = f"{_signed(delta.low)} to {_signed(delta.high)} ({delta.text})"
        start = f"{variant} minus {delta.against}, {column}: reported {reported}"
        if not cell.seeds or not isfinite(cell.value):
            yield Finding("reproduction", variant, column, "note", f"{start}: not measured, because {cell.problem}.")
            continue
        effect, interval = estimate(cell.value, cell.low, cell.high)
        start += f", measured {effect}{f' {interval}' if isfinite(cell.low) else ''} on {counted(cell.seeds, 'seed')}"
        overlap = cell.low <= float(delta.high.high) and float(delta.low.low) <= cell.high
        said = "the intervals overlap" if overlap else "the intervals do not overlap"
        severity: Severity = "note"
        if reason := "; ".join(filter(None, (measured.difference, cell.problem))):
            they = f"{said}, but they" if isfinite(cell.low) else "the two values"
            said = f"{they} are not comparable, because {reason}"
        elif not isfinite(cell.low):
            said = "one seed does not show how much runs vary"
        elif not overlap:
            severity = "warn"
        yield Finding("reproduction", variant, column, severity, f"{start}: {said}.")


def _shown(cell: MeasuredCell, like: Printed) -> str:
    interval = f" [{like.show(cell.low)}, {like.show(cell.high)}]" if isfinite(cell.low) else ""
    return f"{like.show(cell.value)}{interval} on {counted(cell.seeds, 'seed')}"


def _signed(number: Printed) -> str:
    return number.text if number.text[0] in "+-" else f"+{number.text}"
