"""A finding of the audit: one sentence about one number or several."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warn", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing to know about one cell, row or group of rows; `column` is "" where it concerns several.

    `severity` is error (impossible or wrong), warn (unsupported) or note.
    """

    kind: str
    variant: str
    column: str
    severity: Severity
    sentence: str


def count(number: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {word}{'s' if number != 1 else ''}"
