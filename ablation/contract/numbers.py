"""Format numbers for readers: every number that is printed becomes text in this module, by the same rules.

- Numbers of one unit that are shown together (effects, intervals, means) have the same decimals: two significant digits
  of their typical noise, and at most six of the largest number; without noise, four of the largest number.
- The ends of an interval are rounded outwards, and get more decimals if they would look like zero but are not.
- A number that is shown alone has four significant digits, and a measure of noise or a p-value has two.
- A number that a user stated or a file holds (a margin, a target, a value) is rounded only to six significant digits.
- Zero has no sign, and a number that is missing or NaN is a dash.

Files for programs (JSON, CSV) have every digit. Pages and figures print the same texts with a true minus sign.
"""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any, TypeGuard

MISSING = "-"
_MOST_DIGITS = 6
_MORE_DECIMALS = 3  # at most, that keep an end of an interval from looking like zero
_DUST = 1e-9  # of a unit of the last decimal: less than this is an error of floating point


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def decimals_for(values: Iterable[Any], noise: Iterable[Any] = ()) -> int:
    """Return the number of decimals for numbers that are shown together.

    `noise` holds standard deviations, or half the widths of intervals.
    """
    largest = max((abs(value) for value in values if is_number(value)), default=0.0)
    spreads = sorted(abs(spread) for spread in noise if is_number(spread) and spread)
    whole = _place(largest) if largest else 0
    if not spreads:
        return max(3 - whole, 0)
    return max(min(1 - _place(spreads[len(spreads) // 2]), _MOST_DIGITS - 1 - whole), 0)


def _place(value: float) -> int:
    """Return the place of the first significant digit: 0 for units, -1 for tenths."""
    return math.floor(math.log10(value))


def fixed(value: Any, decimals: int, sign: str = "") -> str:
    """Return a number as text with these decimals; a `sign` of `+` shows the sign of positive numbers."""
    if not is_number(value):
        return _not_finite(value, sign)
    text = f"{value:{sign}.{decimals}f}"
    return text if float(text) else text.lstrip("+-")


def bound(value: Any, decimals: int, sign: str = "", *, up: bool) -> str:
    """Return the lower end of an interval (with `up`, the upper end) as text, rounded outwards."""
    if not is_number(value):
        return _not_finite(value, sign)
    if abs(value) <= _DUST * 10.0**-decimals:
        return fixed(0.0, decimals)
    for shown in range(decimals, decimals + _MORE_DECIMALS + 1):
        if float(text := _outwards(value, shown, sign, up=up)):
            return text
    return f"{float(_outwards(value, -_place(abs(value)), sign, up=up)):{sign}.1g}"


def _outwards(value: float, decimals: int, sign: str, *, up: bool) -> str:
    step = 10.0**-decimals
    text = f"{value:{sign}.{decimals}f}"
    inside = (value - float(text)) * (1 if up else -1)
    if inside > max(_DUST * step, 1e-12 * abs(value)):
        text = f"{float(text) + (step if up else -step):{sign}.{decimals}f}"
    return text


def interval(low: Any, high: Any, decimals: int, sign: str = "+") -> str:
    """Return an interval as text, such as `[+0.012, +0.034]`; a dash if neither end is known."""
    if _missing(low) and _missing(high):
        return MISSING
    return f"[{bound(low, decimals, sign, up=False)}, {bound(high, decimals, sign, up=True)}]"


def half(low: Any, high: Any) -> float:
    """Return half the width of an interval, as a measure of noise; NaN if an end is not known."""
    return (high - low) / 2 if is_number(low) and is_number(high) else math.nan


def estimate(value: Any, low: Any, high: Any, decimals: int | None = None, sign: str = "+") -> tuple[str, str]:
    """Return an estimate and its interval as texts; by default the interval's width decides the number of decimals."""
    if decimals is None:
        decimals = decimals_for((value, low, high), [half(low, high)])
    return fixed(value, decimals, sign), interval(low, high, decimals, sign)


def together(values: Iterable[Any], sign: str = "") -> list[str]:
    """Return numbers of one unit, whose noise is not known, as texts; whole numbers get no decimals."""
    given = list(values)
    whole = all(float(value).is_integer() for value in given if is_number(value))
    return [fixed(value, 0 if whole else decimals_for(given), sign) for value in given]


def alone(value: Any, sign: str = "", digits: int = 4) -> str:
    """Return a number that is shown alone as text, with `digits` significant digits or all of its whole part."""
    if not is_number(value):
        return _not_finite(value, sign)
    if abs(value) >= 10**digits:
        return f"{value:{sign}.0f}"
    return f"{value:{sign}.{digits}g}" if value else "0"


def rough(value: Any) -> str:
    """Return a measure of noise as text, with two significant digits."""
    return alone(value, digits=2)


def stated(value: Any) -> str:
    """Return a number from a user or a file as text, with up to six significant digits."""
    return f"{value + 0.0:g}" if is_number(value) else _not_finite(value, "")


def p_value(value: Any) -> str:
    """Return a p-value as text with two significant digits; a p-value too small for a float is `< 1e-300`."""
    return "< 1e-300" if is_number(value) and value <= 0 else rough(value)


def p_equals(value: Any) -> str:
    """Return a p-value as `p = 0.012` or `p < 1e-300`."""
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def percent(share: Any, decimals: int = 0, sign: str = "") -> str:
    """Return a share as text in percent; a share that is neither 0 nor 1 is never shown as 0% or 100%."""
    if not is_number(share):
        return MISSING
    step, shown = 10.0**-decimals, fixed(100 * share, decimals, sign)
    if 0 < share < 1 and float(shown) in (0, 100):
        return f"< {fixed(step, decimals)}%" if share < 0.5 else f"> {fixed(100 - step, decimals)}%"
    return f"{shown}%"


def shares(low: Any, high: Any) -> str:
    """Return an interval of shares as text, rounded outwards: `[12%, 34%]`."""
    ends = (bound(100 * end if is_number(end) else end, 0, up=up) for end, up in ((low, False), (high, True)))
    return f"[{', '.join(end if end == MISSING else f'{end}%' for end in ends)}]"


def confidence(alpha: float, sides: int = 1) -> str:
    """Return an interval's confidence as text: `95%` for an alpha of 0.05, `90%` for 0.05 on each of two `sides`."""
    return f"{100 * (1 - sides * alpha):.6g}%"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs` or `no runs`."""
    return counted(count, noun) if count else f"no {noun}s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 run` or `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a duration as text: `0.3 s`, `18 s`, `4 min` or `2.5 h`; `?` if it is not finite."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 99.5:
        return f"{seconds:.1f} s" if 0.05 <= seconds < 0.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def device_time(hours: float, price: float | None = None) -> str:
    """Return device-hours as `25 s of device time (3.47)`, with the cost if the price of an hour is known."""
    return f"{duration(3600 * hours)} of device time" + (f" ({money(hours * price)})" if price else "")


def money(amount: float | None) -> str:
    """Return an amount of money as text, in the currency of the price; a dash for None."""
    return MISSING if amount is None else f"{amount:.2f}"


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _not_finite(value: Any, sign: str) -> str:
    return f"{value:{sign}}" if isinstance(value, float) and math.isinf(value) else MISSING
