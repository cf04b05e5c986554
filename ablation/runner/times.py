"""Durations as a person reads them."""

import math


def duration(seconds: float) -> str:
    """Return `18 s`, `4 min` or `2.5 h`."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
