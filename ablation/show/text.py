"""Texts from configurations and logs, made fit to be shown: what tables, figures and the page share."""

import re
import textwrap
from typing import Any

from ablation.contract.reading import printable


def plain(text: str) -> str:
    """Text that is drawn as it stands: control characters become spaces."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def shown(value: Any) -> Any:
    """Jinja's `finalize`: a browser would obey marks that turn the direction of a line, and has no sign for ESC."""
    return type(value)(printable(value)) if isinstance(value, str) else value


def wrapped(text: str, width: int) -> str:
    """Break at spaces into lines of at most `width` characters; a longer word is cut."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def shortened(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def describe_value(value: Any) -> str:
    """A configuration value as a person writes it in YAML."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return re.sub(r"e([+-])0+", r"e\1", f"{value:.10g}").replace("e+", "e")
        case list() | tuple():
            return f"[{', '.join(describe_value(item) for item in value)}]"
        case dict():
            return "{" + ", ".join(f"{key}: {describe_value(item)}" for key, item in value.items()) + "}"
    return str(value)
