"""Numbers, durations and counts as the report page writes them."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

MINUS, NOTHING = "−", "–"


def is_number(value: Any) -> TypeGuard[float]:
    """Whether there is a finite number to show."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any, decimals: int = 4) -> str:
    """A measured value with fixed decimals and a true minus sign; a dash where there is none."""
    return f"{value:.{decimals}f}".replace("-", MINUS) if is_number(value) else NOTHING


def alike(values: Sequence[float]) -> list[str]:
    """Numbers of one row with the same decimals: three digits of the largest; none where all are whole."""
    largest = max(map(abs, values), default=0.0)
    whole = all(float(value).is_integer() for value in values) or not largest
    decimals = 0 if whole else max(2 - math.floor(math.log10(largest)), 0)
    return [number(value, decimals) if decimals < 6 else f"{value:.3g}".replace("-", MINUS) for value in values]


def signed(value: Any, decimals: int = 4) -> str:
    """An effect, always with its sign (zero has none)."""
    if not is_number(value):
        return NOTHING
    text = f"{value:+.{decimals}f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def p_value(value: Any) -> str:
    """A p-value; very small ones only as a bound."""
    if not is_number(value):
        return NOTHING
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def decimals_for(spreads: Iterable[float], least: int = 2, most: int = 5) -> int:
    """Decimals that show two significant digits of a typical spread (a margin, an sd, half an interval)."""
    known = sorted(abs(s) for s in spreads if is_number(s) and s != 0)
    if not known:
        return 4
    return min(max(1 - math.floor(math.log10(known[len(known) // 2])), least), most)


def duration(seconds: Any) -> str:
    """Device or wall time in the largest unit that keeps it readable."""
    if not is_number(seconds):
        return NOTHING
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 run`, `2 runs`, `no runs`."""
    return f"{f'{count:,}' if count else 'no'} {one if count == 1 else many or one + 's'}"


def day(moments: Iterable[Any]) -> str | None:
    """The last of some ISO moments, to the minute."""
    known = [moment for moment in moments if isinstance(moment, str)]
    return minute(max(known)) if known else None


def minute(moment: str) -> str:
    """An ISO moment to the minute."""
    return moment[:16].replace("T", " ")


def tick(value: float) -> str:
    """A label of an axis: as few digits as the number needs."""
    return "0" if value == 0 else f"{value:g}".replace("-", MINUS)


def severity_word(severity: str) -> str:
    """Severity of a finding or of a health event in a reader's word."""
    return {"warn": "warning", "abort": "aborted"}.get(severity, severity)


def state_word(state: str) -> str:
    """State of a run or stage in a reader's word."""
    return {"missing": "not run", "blocked": "not started (an input is not ok)"}.get(state, state)
