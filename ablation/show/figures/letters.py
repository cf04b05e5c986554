"""Outlines of letters, laid out in a line: so that a text is the same picture on a machine without the font."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ft2font import FT2Font, Kerning, LoadFlags
from numpy.typing import NDArray

from ablation.show.figures.style import FAMILY

UNITS = 100.0  # of outlines and widths, to the size of the letters


class Outline(NamedTuple):
    """Corners [n, 2] in UNITS, y upwards, and what leads to each (codes of matplotlib's paths)."""

    corners: NDArray[np.float64]
    codes: NDArray[np.uint8]


class Letters(NamedTuple):
    """One line of text: every letter with its x, and the width of the line, in UNITS."""

    placed: tuple[tuple[str, float], ...]
    width: float


@lru_cache(maxsize=1 << 14)
def laid_out(text: str, bold: bool = False, italic: bool = False) -> Letters:
    """Lay out one line of text, with the font's kerning."""
    placed, x, before = [], 0.0, ""
    for letter in text:
        x += _kerning(before, letter, bold, italic) if before else 0.0
        placed.append((letter, x))
        x += _letter(letter, bold, italic)[1]
        before = letter
    return Letters(tuple(placed), x)


def outline(letter: str, bold: bool = False, italic: bool = False) -> Outline:
    """The outline of one letter."""
    return _letter(letter, bold, italic)[0]


@lru_cache(maxsize=1 << 12)
def joined(text: str, bold: bool, italic: bool) -> Outline:
    """The outlines of all letters of a line as one."""
    parts = [(outline(letter, bold, italic), x) for letter, x in laid_out(text, bold, italic).placed]
    parts = [(part, x) for part, x in parts if len(part.corners)]
    corners = [np.empty((0, 2)), *(np.add(part.corners, [x, 0.0]) for part, x in parts)]
    return Outline(np.concatenate(corners), np.concatenate([np.empty(0, np.uint8), *(part.codes for part, _ in parts)]))


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width in points of one line of text."""
    return laid_out(text, bold).width * size / UNITS


def fitted(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """Return the text, or as much of its beginning as fits into `width` points, with an ellipsis."""
    if text_width(text, size, bold=bold) <= width:
        return text
    while text and text_width(f"{text}…", size, bold=bold) > width:
        text = text[:-1]
    return f"{text}…"


def broken(text: str, size: float, width: float, *, bold: bool = False) -> list[str]:
    """Break the text at spaces into lines of at most `width` points; a longer word is cut."""
    lines: list[str] = []
    for word in text.replace("\n", " ").split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size, bold=bold) <= width:
            lines[-1] += f" {word}"
        elif word:
            lines.append(word)
    return [fitted(line, size, width, bold=bold) for line in lines]


@lru_cache(maxsize=1 << 12)
def _letter(letter: str, bold: bool, italic: bool) -> tuple[Outline, float]:
    """Outline and width of a letter; one that the font does not have is its empty box."""
    font = _font(bold, italic)
    index = font.get_char_index(ord(letter if letter.isprintable() else " "))
    glyph = font.load_glyph(index, flags=LoadFlags.NO_HINTING)
    corners, codes = font.get_path()
    return Outline(np.asarray(corners, dtype=float), np.asarray(codes)), glyph.linearHoriAdvance / 65536


@lru_cache(maxsize=1 << 14)
def _kerning(first: str, second: str, bold: bool, italic: bool) -> float:
    font = _font(bold, italic)
    left, right = font.get_char_index(ord(first)), font.get_char_index(ord(second))
    return font.get_kerning(left, right, Kerning.UNFITTED) / 64


@lru_cache(maxsize=4)
def _font(bold: bool, italic: bool) -> FT2Font:
    words: dict[str, Any] = {"weight": "bold" if bold else "normal", "style": "italic" if italic else "normal"}
    font = FT2Font(fontManager.findfont(FontProperties(family=FAMILY, **words)))
    font.set_size(UNITS, 72)
    return font
