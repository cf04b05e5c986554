"""Our own numbers beside reported ones: does the reported one lie in our interval, do the two ranges overlap?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracker.judge.audit_finding import Finding
from tracker.judge.audit_training import Curves

_EXACT = 1e-9  # slack for binary floating point, far below any printed digit


@dataclass(frozen=True)
class MeasuredCell:
    """Our number for one published cell, with its interval, in the published metric's own sense."""

    value: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Measured:
    """Our table. `difference` says in words why it may not be compared with the source; "" where it may."""

    rows: Mapping[str, Mapping[str, MeasuredCell]]
    difference: str = ""
    deltas: Mapping[tuple[str, str, str], MeasuredCell] = field(default_factory=dict)  # variant, against, column
    curves: Curves = field(default_factory=dict)  # of the metrics of which the source states training figures


def cell_findings(rows: Mapping[str, Mapping[str, float]], digits: int, measured: Measured) -> Iterator[Finding]:
    """Reported cells beside our intervals; `digits` are those that the source prints."""
    half = 0.5 * 10.0**-digits

    def show(value: float) -> str:
        return f"{value:.{digits}f}"

    for variant, row in rows.items():
        for column, value in row.items():
            cell = measured.rows.get(variant, {}).get(column)
            if cell is None or not np.isfinite(cell.value):
                continue
            ours = f"{show(cell.value)} [{show(cell.low)}, {show(cell.high)}]"
            start = f"{variant}, {column}: reported {show(value)}, measured {ours} on {_seeds(cell.seeds)}"
            if measured.difference:
                yield Finding(
                    "reproduction", variant, column, "note", f"{start}: not comparable, {measured.difference}."
                )
            elif cell.low - half <= value <= cell.high + half:
                yield Finding("reproduction", variant, column, "note", f"{start}: reproduced within the interval.")
            else:
                yield Finding("reproduction", variant, column, "warn", f"{start}: differs, the interval excludes it.")


def delta_findings(deltas: Sequence[Mapping[str, Any]], measured: Measured) -> Iterator[Finding]:
    """Reported ranges of differences beside our intervals: do the two overlap?"""
    for delta in deltas:
        variant, column = delta["variant"], delta["column"]
        cell = measured.deltas.get((variant, delta["against"], column))
        if cell is None or not np.isfinite([cell.value, cell.low, cell.high]).all():
            continue
        start = (
            f"{variant} minus {delta['against']}, {column}: reported {delta['low']:+g} to {delta['high']:+g} "
            f"({delta['text']}), measured {cell.value:+.4f} [{cell.low:+.4f}, {cell.high:+.4f}] on {_seeds(cell.seeds)}"
        )
        overlap = cell.low <= delta["high"] + _EXACT and delta["low"] - _EXACT <= cell.high
        if measured.difference:
            meets = "the intervals overlap" if overlap else "the intervals do not overlap"
            text = f"{start}: {meets}, but they are not comparable, {measured.difference}."
            yield Finding("reproduction", variant, column, "note", text)
        elif overlap:
            yield Finding("reproduction", variant, column, "note", f"{start}: the intervals overlap.")
        else:
            yield Finding("reproduction", variant, column, "warn", f"{start}: the intervals do not overlap.")


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"
