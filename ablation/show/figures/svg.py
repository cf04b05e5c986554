"""A sheet as an SVG, with letters as outlines, each stored once."""

import re
from collections.abc import Iterable
from xml.sax.saxutils import escape

import numpy as np

from ablation.show.figures.letters import UNITS, Outline, laid_out, outline
from ablation.show.figures.sheet import Area, Array, Box, Dots, Line, Sheet, Text

Letter = tuple[str, bool, bool]  # bold, italic
# Codes of matplotlib's paths: what leads to a corner, and how many corners it takes.
_COMMANDS = {1: ("M", 1), 2: ("L", 1), 3: ("Q", 2), 4: ("C", 3), 79: ("Z", 1)}


def as_svg(sheet: Sheet) -> str:
    """Return the file's text."""
    letters: dict[Letter, str] = {}
    clips: dict[Box, str] = {}
    body = [_drawn(mark, letters, clips) for mark in sheet.marks]
    size = f"{_number(sheet.width)} {_number(sheet.height)}"
    width, height = size.split()
    title = f"<title>{escape(sheet.title)}</title>\n" if sheet.title else ""
    lines = [
        '<?xml version="1.0" encoding="utf-8" standalone="no"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" viewBox="0 0 {size}"'
        f' role="img">\n{title}<defs>',
        *(f'<path id="{id}" d="{_outlined(outline(*letter))}"/>' for letter, id in letters.items()),
        *(f'<clipPath id="{id}">{_rectangle(box)}</clipPath>' for box, id in clips.items()),
        f'</defs>\n<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _drawn(mark: Line | Area | Dots | Text, letters: dict[Letter, str], clips: dict[Box, str]) -> str:
    if isinstance(mark, Text):
        return _written(mark, letters)
    if isinstance(mark, Dots):
        return "".join(_shape(mark, x, y) for x, y in mark.points[np.isfinite(mark.points).all(axis=1)].tolist())
    clip = ""
    if mark.clip is not None:
        clip = f' clip-path="url(#{clips.setdefault(mark.clip, f"c{len(clips)}")})"'
    if isinstance(mark, Area):
        return f'<path d="{_through(mark.points)}Z" fill="{mark.color}"{_opacity("fill", mark.alpha)}{clip}/>'
    dash = f' stroke-dasharray="{_numbers(part * mark.width for part in mark.dash)}"' if mark.dash else ""
    crisp = ' shape-rendering="crispEdges"' if mark.crisp else ' stroke-linejoin="round"'
    stroke = f'stroke="{mark.color}" stroke-width="{_number(mark.width)}"{_opacity("stroke", mark.alpha)}'
    return f'<path d="{_through(mark.points)}" fill="none" {stroke}{dash}{crisp}{clip}/>'


def _written(mark: Text, letters: dict[Letter, str]) -> str:
    scale = mark.size / UNITS
    turn = " rotate(-90)" if mark.upright else ""
    uses = []
    for letter, x in laid_out(mark.text, mark.bold, mark.italic).placed:
        style = (letter, mark.bold, mark.italic)
        if len(outline(*style).corners):
            uses.append(f'<use href="#{letters.setdefault(style, f"g{len(letters)}")}" x="{_number(x)}"/>')
    place = f"translate({_number(mark.x)} {_number(mark.y)}){turn} scale({scale:g})"
    return f'<g transform="{place}" fill="{mark.color}">{"".join(uses)}</g>'


def _shape(mark: Dots, x: float, y: float) -> str:
    r = mark.radius
    paint = f'fill="{mark.fill or "none"}"{_opacity("fill", mark.alpha)}'
    if mark.width:
        paint += f' stroke="{mark.color}" stroke-width="{_number(mark.width)}"'
    match mark.shape:
        case "dot":
            return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(r)}" {paint}/>'
        case "bar":
            return f'<path d="M{_number(x)} {_number(y - r)}V{_number(y + r)}" {paint}/>'
        case "square":
            corners = ((-r, -r), (r, -r), (r, r), (-r, r))
        case "diamond":
            corners = ((0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0))
    return f'<path d="{_through(np.array([(x + dx, y + dy) for dx, dy in corners]))}Z" {paint}/>'


def _through(points: Array) -> str:
    """Path data of a line through the points, broken at NaN."""
    text = "".join(f"L{x:g} {y:g}" for x, y in points.tolist())
    text = re.sub("L[^L]*nan[^L]*", "!", text) if "nan" in text else text
    return re.sub("(^|!)!*L", "M", text).replace("!", "")


def _outlined(letter: Outline) -> str:
    """Path data of a letter; y downwards."""
    corners, parts, place = letter.corners.tolist(), [], 0
    while place < len(corners):
        command, count = _COMMANDS[int(letter.codes[place])]
        taken = corners[place : place + count]
        parts.append(command + ("" if command == "Z" else _numbers(z for x, y in taken for z in (x, -y))))
        place += count
    return "".join(parts)


def _rectangle(box: Box) -> str:
    left, top, right, bottom = box
    size = f'width="{_number(right - left)}" height="{_number(bottom - top)}"'
    return f'<rect x="{_number(left)}" y="{_number(top)}" {size}/>'


def _opacity(kind: str, alpha: float) -> str:
    return f' {kind}-opacity="{alpha:g}"' if alpha < 1 else ""


def _numbers(values: Iterable[float]) -> str:
    return " ".join(map(_number, values))


def _number(value: float) -> str:
    return f"{round(value, 2):g}"
