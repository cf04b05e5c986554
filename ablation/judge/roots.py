"""Finds the root of a function, as scipy.optimize.brentq does.

Verdicts need nothing else of scipy.optimize, whose import takes a sixth of the time for comparing two small files.
"""

from collections.abc import Callable
from math import inf


def brentq(function: Callable[[float], float], a: float, b: float, *, xtol: float, rtol: float = 2.0**-50) -> float:
    """Return the root of a function between `a` and `b`, bit for bit as scipy does (Brent 1973, chapter 4).

    Raises:
        ValueError: the signs at `a` and `b` are the same.
    """
    before, current, other = float(a), float(b), 0.0
    f_before, f_here, f_other = float(function(before)), float(function(current)), 0.0
    if f_before == 0 or f_here == 0:
        return before if f_before == 0 else current
    if (f_before < 0) == (f_here < 0):
        raise ValueError("f(a) and f(b) must have different signs")
    step_before = step = 0.0
    for _ in range(100):
        if f_before != 0 and f_here != 0 and (f_before < 0) != (f_here < 0):
            other, f_other, step_before = before, f_before, current - before
            step = step_before
        if abs(f_other) < abs(f_here):
            before, current, other = current, other, current
            f_before, f_here, f_other = f_here, f_other, f_here
        delta, half = (xtol + rtol * abs(current)) / 2, (other - current) / 2
        if f_here == 0 or abs(half) < delta:
            return current
        tried = inf
        if abs(step_before) > delta and abs(f_here) < abs(f_before):
            if before == other:  # the secant
                tried = -f_here * (current - before) / (f_here - f_before)
            else:
                slope, other_slope = (f_before - f_here) / (before - current), (f_other - f_here) / (other - current)
                if below := other_slope * slope * (f_other - f_before):
                    tried = -f_here * (f_other * other_slope - f_before * slope) / below
        if 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - delta):
            step_before, step = step, tried
        else:
            step_before = step = half
        before, f_before = current, f_here
        current += step if abs(step) > delta else delta if half > 0 else -delta
        f_here = float(function(current))
    raise RuntimeError("no convergence after 100 steps")
