"""Student's t without scipy, whose import takes longer than all else that `ablation try` does."""

import math
from functools import lru_cache


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) for whole degrees of freedom from 1 on (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = sine * total if not odd else 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))
    return (1 - inside) / 2


@lru_cache(maxsize=1024)
def t_quantile(tail: float, freedom: int) -> float:
    """Return the t with P(T > t) = tail, for a tail below one half."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > tail and high < 1e9:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > tail else (low, middle)
    return high
