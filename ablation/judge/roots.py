"""Where a function crosses zero, bit for bit as `scipy.optimize`, whose import costs a command 0.3 s.

Both need signs that differ at the ends, and give up after 100 steps.
"""

from collections.abc import Callable
from math import copysign, isnan

STEPS = 100
RTOL = 2.0**-50  # scipy's default: four times the spacing of floats at 1


def brent(function: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = RTOL) -> float:
    """Return a root between low and high: secants and inverse quadratic steps, else halves (Brent 1973, chapter 4)."""
    value = _checked(function)
    before, now = float(low), float(high)
    of_before, of_now = value(before), value(now)
    if of_before == 0:
        return before
    if of_now == 0:
        return now
    _differ(of_before, of_now)
    other = of_other = earlier = step = 0.0
    for _ in range(STEPS):
        if of_before != 0 and _sign(of_before) != _sign(of_now):
            other, of_other = before, of_before
            earlier = step = now - before
        if abs(of_other) < abs(of_now):
            before, now, other = now, other, now
            of_before, of_now, of_other = of_now, of_other, of_now
        tolerance, half = (xtol + rtol * abs(now)) / 2, (other - now) / 2
        if of_now == 0 or abs(half) < tolerance:
            return now
        earlier, step, last = half, half, (earlier, step)
        if abs(last[0]) > tolerance and abs(of_now) < abs(of_before):
            if before == other:
                tried = -of_now * (now - before) / (of_now - of_before)
            else:
                slope, across = (of_before - of_now) / (before - now), (of_other - of_now) / (other - now)
                tried = -of_now * (of_other * across - of_before * slope)
                tried /= across * slope * (of_other - of_before)
            if 2 * abs(tried) < min(abs(last[0]), 3 * abs(half) - tolerance):
                earlier, step = last[1], tried
        before, of_before = now, of_now
        now += step if abs(step) > tolerance else tolerance if half > 0 else -tolerance
        of_now = value(now)
    raise RuntimeError(f"no root after {STEPS} steps, at {now}")


def bisect(function: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = RTOL) -> float:
    """Return a root between low and high by halving."""
    value, low, high = _checked(function), float(low), float(high)
    of_low, of_high = value(low), value(high)
    if of_low == 0:
        return low
    if of_high == 0:
        return high
    _differ(of_low, of_high)
    width = high - low
    for _ in range(STEPS):
        width *= 0.5
        middle = low + width
        of_middle = value(middle)
        if _sign(of_middle) == _sign(of_low):
            low = middle
        if of_middle == 0 or abs(width) < xtol + rtol * abs(middle):
            return middle
    raise RuntimeError(f"no root after {STEPS} steps, at {low}")


def _sign(value: float) -> float:
    return copysign(1.0, value)


def _checked(function: Callable[[float], float]) -> Callable[[float], float]:
    def value(x: float) -> float:
        found = float(function(x))
        if isnan(found):
            raise ValueError(f"the function is NaN at {x}")
        return found

    return value


def _differ(one: float, other: float) -> None:
    if _sign(one) == _sign(other):
        raise ValueError(f"the function has one sign at both ends: {one} and {other}")
