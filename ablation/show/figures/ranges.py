"""Where numbers stand along an axis: its ends, its ticks and their labels."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator

from ablation.show.figures.sheet import Array

HUGE = 1e300  # beyond it a difference of two numbers may overflow
MINUS = "−"


@dataclass(frozen=True)
class Range:
    """The numbers of an axis from one end to the other; `ticks` are (number, label)."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    log: bool = False

    def share(self, values: Any) -> Array:
        """Return how far along the axis each value stands, 0 to 1; NaN for what a logarithmic axis cannot show."""
        numbers = np.clip(np.asarray(values, dtype=float), -HUGE, HUGE)
        if not self.log:
            return (numbers - self.low) / (self.high - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = np.log10(np.where(numbers > 0, numbers, np.nan))
        low, high = math.log10(self.low), math.log10(self.high)
        return (powers - low) / (high - low)


def spanning(
    values: Any, ticks: int = 4, *, margin: float = 0.05, whole: bool = False, log: bool = False, labels: bool = True
) -> Range:
    """Return an axis that holds all finite values, with a margin at both ends and at most about `ticks` + 1 ticks.

    `whole`: ticks at whole numbers only.
    """
    numbers = np.asarray(values, dtype=float)
    numbers = np.clip(numbers[np.isfinite(numbers)], -HUGE, HUGE)
    if log:
        return _logarithmic(numbers[numbers > 0], margin)
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        half = 0.05 * abs(low) or 0.05
        low, high = low - half, high + half
    pad = margin * (high - low)
    return between(low - pad, high + pad, ticks, whole=whole, labels=labels)


def between(low: float, high: float, ticks: int = 4, *, whole: bool = False, labels: bool = True) -> Range:
    """Return an axis with these ends."""
    places = MaxNLocator(ticks, integer=whole).tick_values(low, high)
    inside = [float(place) for place in places if low <= place <= high]
    return Range(low, high, tuple(zip(inside, tick_labels(inside) if labels else [""] * len(inside), strict=True)))


def _logarithmic(numbers: Array, margin: float) -> Range:
    ends = np.log10([numbers.min(), numbers.max()]) if len(numbers) else np.array([-1.0, 0.0])
    low, high = np.clip(ends, -290, 290).tolist()
    pad = margin * (high - low) if high - low > 0.005 else 0.2
    low, high = max(low - pad, -300.0), min(high + pad, 300.0)
    subs = (1.0,) if high - low >= 3 else (1.0, 2.0, 5.0)
    start, end = 10.0**low, 10.0**high
    inside = [float(x) for x in LogLocator(subs=subs, numticks=12).tick_values(start, end) if start <= x <= end]
    return Range(start, end, tuple((x, tick_label(f"{x:g}")) for x in inside), log=True)


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Write all ticks of an axis alike, with as few decimals as tell them apart; tiny and huge ones as `2.5e-5`."""
    size = max(map(abs, ticks), default=0.0)
    step = min((b - a for a, b in pairwise(ticks)), default=size) or 1.0
    if not size or (step >= 1e-4 and size < 1e5):
        decimals = _decimals(ticks, step)
        return [tick_label(f"{tick:.{decimals}f}") for tick in ticks]
    power = math.floor(math.log10(size))
    shares = [tick / 10.0**power for tick in ticks]
    decimals = _decimals(shares, step / 10.0**power)
    return [tick_label(f"{share:.{decimals}f}e{power}") for share in shares]


def tick_label(number: str) -> str:
    """Write `2e-05` as `2e-5`, zero without a sign or an exponent, and a true minus sign."""
    mantissa, _, exponent = number.partition("e")
    if float(mantissa) == 0:
        return mantissa.lstrip("-") if not exponent else "0"
    return (mantissa + (f"e{int(exponent)}" if exponent else "")).replace("-", MINUS)


def _decimals(ticks: Iterable[float], step: float) -> int:
    known = list(ticks)
    return next((d for d in range(9) if all(abs(round(t, d) - t) <= 1e-3 * step for t in known)), 9)
