"""Our own numbers against reported ones: could another run of ours have given the reported number?

The interval is a prediction interval of a new result, not a confidence interval of our mean: a single honest run lies
outside of the latter most of the time when there are many seeds.
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
    """Our number for one published cell, in the units and direction of the published metric.

    `low` to `high` is the prediction interval of a mean over as many runs as the source's; NaN with one seed, which
    says nothing about another. `problem` says what is wrong with our runs, "" where nothing is. `noise` is that of our
    own mean, and `half` the half width of its confidence interval; NaN with one seed. `identical`: of a difference,
    that every item has the same value in both variants, in each seed.
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
    """Our table. `difference` is the reason why it may not be compared with the source; "" if there is none.

    `curves` are of the metrics whose training figures the source states, `settings` the variants' resolved
    configurations, `ran` the variants with a run that succeeded. `reached`: of a pair with identical published cells,
    whether the value that verdicts rest on differs. `margin` is the study's, in the metric's unit.
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
    """Compare the reported cells with our prediction intervals."""
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
                said = "reproduced, because the reported value lies within the range of another run"
            else:
                said = "different, because the reported value lies outside the range of another run"
                severity = "warn"
            yield Finding("reproduction", variant, column, severity, f"{start}: {said}.")


def delta_findings(deltas: Sequence[Delta], measured: Measured) -> Iterator[Finding]:
    """Compare the reported ranges of differences with our prediction intervals: do they overlap?"""
    for delta in deltas:
        variant, column = delta.variant, delta.column
        cell = measured.deltas.get((variant, delta.against, column))
        if cell is None:
            continue
        reported = f"{_signed(delta.low)} to {_signed(delta.high)} ({delta.text})"
        start = f"{variant} minus {delta.against}, {column}: reported {reported}"
        if not cell.seeds or not isfinite(cell.value):
            yield Finding("reproduction", variant, column, "note", f"{start}, which was not measured ({cell.problem}).")
            continue
        effect, interval = estimate(cell.value, cell.low, cell.high)
        start += f", measured {effect}{f' {interval}' if isfinite(cell.low) else ''} on {counted(cell.seeds, 'seed')}"
        overlap = cell.low <= float(delta.high.high) and float(delta.low.low) <= cell.high
        said = "the intervals overlap" if overlap else "the intervals do not overlap"
        severity: Severity = "note"
        if reason := "; ".join(filter(None, (measured.difference, cell.problem))):
            they = f"{said}, but they" if isfinite(cell.low) else "the two"
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
