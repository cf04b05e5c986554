"""Convert values and texts to forms that are short and safe to print."""

import json
import math
import re
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

# Control characters except tab and newline, separators, marks that change a line's direction, lone surrogates.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return the text with escapes for characters that a terminal would act on or cannot show: ESC becomes `\x1b`."""
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def json_text(value: Any) -> str:
    """Return a value, converted by `plain`, as JSON text with escapes for characters that are not printable."""
    text = json.dumps(plain(value), indent=1, ensure_ascii=False)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def plain(value: Any) -> Any:
    """Return a value in types that JSON has: NaN and infinity as None, times as ISO 8601 text, arrays as lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return value if value is None or isinstance(value, int | str) else str(value)


def no_formula(value: Any) -> Any:
    """Return a cell for a CSV file: text that a spreadsheet would run as a formula gets a leading apostrophe."""
    runs = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if runs else value


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first `most` names and the number of the others as text: `a, b, c and 2 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def joined(names: Sequence[str]) -> str:
    """Return all names as text: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Return rows of cells as lines with aligned columns; `right` says which columns are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in rows
    ]


def one_line(text: object, width: int) -> str:
    """Return the text on one printable line of at most `width` characters."""
    line = printable(" ".join(str(text)[: 100 * width].split()))
    return line if len(line) <= width else f"{line[: width - 1]}…"
