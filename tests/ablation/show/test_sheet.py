"""From data to points to pixels: axes, ticks, panels and the two kinds of file, by hand."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from ablation.show.figures.files import digest
from ablation.show.figures.letters import broken, fitted, text_width
from ablation.show.figures.panel import Frame, Panel, draw_grid
from ablation.show.figures.png import as_image
from ablation.show.figures.ranges import Range, between, spanning, tick_labels
from ablation.show.figures.sheet import Area, Dots, Line, Sheet, rectangle, xy
from ablation.show.figures.svg import as_svg

BLUE, RED = "#0000ff", "#ff0000"


def panel(**looks):
    return Panel(Sheet(200, 100), (20.0, 10.0, 120.0, 60.0), Range(0, 10), Range(-1, 1), **looks)


def test_data_stand_where_the_axes_say():
    # x: 0 to 10 over 20..120 points; y: -1 below (60) to 1 above (10).
    assert panel().place([0, 5, 10], [-1, 0, 1]).tolist() == [[20, 60], [70, 35], [120, 10]]


def test_a_logarithmic_axis_and_what_it_cannot_show():
    axis = spanning([0.01, 100, -1, 0, float("nan")], log=True)
    assert axis.low < 0.01
    assert axis.high > 100
    shares = axis.share([1, 0, -5])
    assert shares[0] == pytest.approx(0.5)
    assert np.isnan(shares[1:]).all()
    assert [label for _, label in axis.ticks] == ["0.01", "0.1", "1", "10", "100"]


def test_a_line_is_broken_where_a_value_is_missing_and_cut_at_the_panel():
    drawn = panel(clipped=True)
    drawn.line([0, 1, 2, 3, 4], [0, 1, float("nan"), 0, 9], BLUE)
    text = as_svg(drawn.sheet)
    assert re.search(r'd="(M20 35L30 10M50 35L60 -190)"', text)
    assert 'clip-path="url(#c0)"' in text
    assert '<clipPath id="c0"><rect x="20" y="10" width="100" height="50"/></clipPath>' in text
    pixels = np.asarray(as_image(drawn.sheet).convert("L"))
    assert (pixels[: int(9 * 160 / 72)] == 255).all()  # nothing above the panel


def test_the_pixels_are_those_of_the_marks():
    sheet = Sheet(72, 36)  # an inch by half an inch
    sheet.marks.append(Area(rectangle(18, 9, 54, 27), RED))
    sheet.marks.append(Dots(xy([36], [18]), BLUE, 4, fill=BLUE))
    sheet.marks.append(Line(xy([0, 72], [34, 34]), BLUE, 2))
    pixels = np.asarray(as_image(sheet))
    assert pixels.shape == (80, 160, 3)
    assert pixels[21, 41].tolist() == pixels[58, 118].tolist() == [255, 0, 0]
    assert pixels[40, 80].tolist() == pixels[75, 10].tolist() == [0, 0, 255]
    assert pixels[18, 80].tolist() == pixels[5, 5].tolist() == [255, 255, 255]


def test_a_text_stands_on_its_line_and_ends_where_it_should():
    for anchor, columns in (("start", slice(0, 88)), ("end", slice(88, 222)), ("middle", slice(30, 148))):
        sheet = Sheet(100, 30)
        sheet.text(40, 20, "HHH", 12, anchor)
        dark = np.asarray(as_image(sheet).convert("L")) < 128
        rows, inside = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
        assert rows.max() <= 20 * 160 / 72  # no descenders
        assert rows.min() >= (20 - 12) * 160 / 72
        assert not dark[:, columns].any() if anchor != "middle" else dark[:, columns].sum() == dark.sum()
        assert inside.size


@pytest.mark.parametrize("text", ["v8-earlystop", "AVA To 1.25", "chrF of the sampled responses", "−2.5e−5"])
def test_widths_are_those_of_the_library(text):
    ends = TextPath((0, 0), text, size=10, prop=FontProperties(family="DejaVu Sans")).get_extents().x1
    assert text_width(text, 10) == pytest.approx(ends, abs=1.0)  # the last letter's own margin is not ink


def test_texts_are_broken_and_cut_to_fit():
    lines = broken("score difference, teacher - student", 8.5, 100, bold=True)
    assert " ".join(lines) == "score difference, teacher - student"
    assert all(text_width(line, 8.5, bold=True) <= 100 for line in lines)
    assert fitted("abcdefghij", 10, 30).endswith("…")
    assert text_width(fitted("abcdefghij", 10, 30), 10) <= 30
    assert broken("", 10, 30) == []


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0.0, 0.25, 0.5], ["0.00", "0.25", "0.50"]),
        ([0.0, 4.0, 8.0], ["0", "4", "8"]),
        ([-0.2, 0.0, 0.2], ["−0.2", "0.0", "0.2"]),
        ([-1e-4, -7.5e-5, 0.0], ["−1.00e-4", "−0.75e-4", "0"]),
        ([0.0, 2e5, 4e5], ["0", "2e5", "4e5"]),
        ([0.0015, 0.002], ["0.0015", "0.0020"]),
        ([], []),
    ],
)
def test_ticks_are_written_alike(ticks, labels):
    assert [label.replace("e−", "e-") for label in tick_labels(ticks)] == labels


@settings(deadline=None)
@given(st.lists(st.floats(allow_infinity=True, allow_nan=True), max_size=8), st.booleans())
def test_any_numbers_have_an_axis_that_holds_them(values, log):
    axis = spanning(values, log=log)
    assert axis.low < axis.high
    finite = [x for x in values if np.isfinite(x) and abs(x) < 1e290 and (x > 1e-290 or not log)]
    shares = axis.share(finite)
    assert ((shares >= -1e-9) & (shares <= 1 + 1e-9)).all()
    assert all(axis.low <= tick <= axis.high for tick, _ in axis.ticks)
    assert len({label for _, label in axis.ticks}) == len(axis.ticks)


def test_nothing_overlaps_in_a_grid():
    """Numbers, labels and titles of any length lie outside of every panel, and inside of the sheet."""
    ranges = (between(0, 1), between(-1e-7, 123456.0), between(1e-7, 2e-7))
    frames = {
        (row, column): Frame(
            ranges[column], ranges[row], title="a long title of a panel " * (row + 1), x_label="step", y_label="label"
        )
        for row in range(3)
        for column in range(3)
    }
    sheet, panels = draw_grid("title", "note " * 60, frames, (120.0, 80.0), y_label="all of them", right=50.0)
    boxes = [p.box for p in panels.values()]
    for mark in sheet.marks:
        if isinstance(mark, (Line, Area, Dots)):
            continue
        length = text_width(mark.text, mark.size, bold=mark.bold)
        end = (mark.x, mark.y - length) if mark.upright else (mark.x + length, mark.y - 0.7 * mark.size)
        left, right = sorted((mark.x, end[0]))
        top, bottom = sorted((mark.y, end[1]))
        assert left >= 0
        assert top >= 0
        assert right <= sheet.width
        assert bottom <= sheet.height
        for x0, y0, x1, y1 in boxes:
            assert right <= x0 or left >= x1 or bottom <= y0 or top >= y1, mark


def test_equal_sheets_are_equal_and_any_difference_is_seen():
    def sheet(**change):
        looks = {"color": BLUE, "width": 1.0, "dash": (5.0, 1.0), "alpha": 1.0, "clip": None, "crisp": False}
        made = Sheet(100, 50, change.pop("title", ""))
        made.marks.append(Line(change.pop("points", xy([0, 1], [0, 1])), **(looks | change)))
        return digest(made)

    assert sheet() == sheet()
    others = [
        {"color": RED},
        {"width": 1.1},
        {"dash": ()},
        {"alpha": 0.5},
        {"clip": (0, 0, 1, 1)},
        {"crisp": True},
        {"points": xy([0, 1], [0, 1.01])},
        {"points": xy([0, 1, 2], [0, 1, 2])},
        {"title": "t"},
    ]
    assert len({sheet(), *(sheet(**change) for change in others)}) == 1 + len(others)
