"""Text for the terminal. Light: who prints a sentence must not import a database for it."""

import shutil
import textwrap


def terminal_width() -> int:
    """Return the width of paragraphs."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)


def paragraph(text: str, indent: str = "") -> str:
    """Return text in lines of the terminal's width, all but the first four columns further in."""
    further = f"{indent}    "
    return textwrap.fill(
        text, terminal_width(), initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )
