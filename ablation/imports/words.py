"""What readers tell of a source, in few words."""

from collections.abc import Sequence
from datetime import UTC, datetime

from ablation.contract.reading import one_line


def shortened(names: Sequence[str]) -> str:
    """Return a list of names in words, at most five of them."""
    shown = ", ".join(one_line(name, 80) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def iso_time(seconds: float | None) -> str | None:
    """Return a time, in seconds since the epoch, as ISO 8601 in UTC; None for none and for one that is out of range."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
