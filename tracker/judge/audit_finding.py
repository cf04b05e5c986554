"""What the audit says: one sentence about one number or several."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing to know about one cell, row or group of rows; `column` is "" where it concerns several.

    `severity` is error (impossible or wrong), warn (unsupported) or note.
    """

    kind: str
    variant: str
    column: str
    severity: str
    sentence: str
