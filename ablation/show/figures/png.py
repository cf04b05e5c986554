"""A sheet as an image of pixels, drawn by matplotlib's renderer."""

from typing import Any

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D, Bbox
from PIL import Image

from ablation.show.figures.letters import UNITS, joined
from ablation.show.figures.sheet import Area, Dots, Line, Sheet, Text

DPI = 160
COMPRESSION = 3  # zlib's level: six takes three times as long for a file one tenth smaller
_SHAPES = {
    "dot": Outline.unit_circle(),
    "bar": Outline([(0, -1), (0, 1)]),
    "diamond": Outline([(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0), (0, -1.4)], closed=True),
    "square": Outline([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)], closed=True),
}


def as_image(sheet: Sheet) -> Image.Image:
    """Draw the marks in their order on white."""
    scale = DPI / 72
    renderer = RendererAgg(round(sheet.width * scale), round(sheet.height * scale), DPI)
    height = float(renderer.height)
    place = Affine2D().scale(scale, -scale).translate(0, height)  # the renderer counts from below
    white = renderer.new_gc()
    white.set_linewidth(0)
    page = Outline([(0, 0), (renderer.width, 0), (renderer.width, height), (0, height), (0, 0)])
    renderer.draw_path(white, page, Affine2D(), (1.0, 1.0, 1.0))
    for mark in sheet.marks:
        pen = renderer.new_gc()
        pen.set_foreground(mark.color)
        match mark:
            case Text():
                _write(mark, renderer, pen, place, scale)
            case Line():
                _clip(mark, pen, place)
                _line(mark, renderer, pen, place)
            case Area():
                _clip(mark, pen, place)
                pen.set_linewidth(0)
                renderer.draw_path(pen, Outline(mark.points), place, (*to_rgb(mark.color), mark.alpha))
            case Dots():
                _dots(mark, renderer, pen, place, scale)
        pen.restore()
    size = (int(renderer.width), int(renderer.height))
    return Image.frombuffer("RGBA", size, renderer.buffer_rgba(), "raw", "RGBA", 0, 1).convert("RGB")


def _clip(mark: Line | Area, pen: Any, place: Affine2D) -> None:
    if mark.clip is not None:
        left, top, right, bottom = mark.clip
        pen.set_clip_rectangle(Bbox(place.transform([(left, bottom), (right, top)])))


def _line(mark: Line, renderer: RendererAgg, pen: Any, place: Affine2D) -> None:
    pen.set_alpha(mark.alpha)
    pen.set_linewidth(mark.width)
    pen.set_joinstyle("miter" if mark.crisp else "round")
    if mark.dash:
        pen.set_dashes(0, [part * mark.width for part in mark.dash])
    pen.set_snap(True if mark.crisp else None)
    renderer.draw_path(pen, Outline(mark.points), place)


def _dots(mark: Dots, renderer: RendererAgg, pen: Any, place: Affine2D, scale: float) -> None:
    pen.set_linewidth(mark.width)
    face = None if mark.fill is None else (*to_rgb(mark.fill), mark.alpha)
    size = Affine2D().scale(mark.radius * scale)
    renderer.draw_markers(pen, _SHAPES[mark.shape], size, Outline(mark.points), place, face)


def _write(mark: Text, renderer: RendererAgg, pen: Any, place: Affine2D, scale: float) -> None:
    letters = joined(mark.text, mark.bold, mark.italic)
    if not len(letters.corners):
        return
    start = place.transform((mark.x, mark.y))
    turned = Affine2D().scale(mark.size / UNITS * scale).rotate_deg(90 if mark.upright else 0).translate(*start)
    pen.set_linewidth(0)
    renderer.draw_path(pen, Outline(letters.corners, letters.codes), turned, to_rgb(mark.color))
