"""The files of a sheet. Two sheets with the same digest are the same picture, so that nothing need be drawn again."""

import hashlib
import inspect
from functools import lru_cache
from pathlib import Path

import matplotlib as mpl

from ablation.contract.atomic import replacing
from ablation.show.figures import letters, png, style, svg
from ablation.show.figures.sheet import Sheet, Text


def digest(sheet: Sheet) -> str:
    """Return 64 hex digits of everything that the picture shows, and of what turns it into files."""
    known = hashlib.sha256(repr((sheet.width, sheet.height, sheet.title, drawing_code())).encode())
    for mark in sheet.marks:
        if isinstance(mark, Text):
            known.update(repr(mark).encode())
        else:
            looks = {name: value for name, value in vars(mark).items() if name != "points"}
            known.update(f"{type(mark).__name__}{mark.points.shape}{looks}".encode())
            known.update(mark.points.tobytes())
    return known.hexdigest()


def save(sheet: Sheet, stem: Path) -> None:
    """Write `<stem>.svg` and `<stem>.png`, without dates or versions, so that equal sheets are equal files."""
    with replacing(stem.with_suffix(".svg")) as file:
        file.write_text(svg.as_svg(sheet), encoding="utf-8")
    with replacing(stem.with_suffix(".png")) as file:
        png.as_image(sheet).save(file, "PNG", compress_level=png.COMPRESSION)


@lru_cache(maxsize=1)
def drawing_code() -> tuple[str, ...]:
    """What turns marks into files: the code, and the library with the font."""
    return (mpl.__version__, *(inspect.getsource(module) for module in (letters, png, style, svg)))
