"""Text for the terminal. Light: printing a sentence must not import a database."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from ablation.contract.reading import json_text, printable

JSON_SCHEMA = 1  # raised where a key changes its meaning or goes; docs/python.md


class Shown:
    """A stream that shows control characters in texts from files, such as ESC, as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text as it may be shown."""
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def obeyed(text: str) -> None:
    """Send the terminal a control sequence."""
    getattr(sys.stdout, "stream", sys.stdout).write(text)


def print_json(command: str, rows: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """Print a command's result as JSON: a map for each row of its table, and further values by name."""
    print(json_text({"schema": JSON_SCHEMA, "command": command, "rows": list(rows)} | more))


def terminal_width() -> int:
    """Return the width of paragraphs."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)


def paragraph(text: str, indent: str = "") -> str:
    """Return text in lines of the terminal's width, all but the first indented by four more columns."""
    further = f"{indent}    "
    return textwrap.fill(
        text, terminal_width(), initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )
